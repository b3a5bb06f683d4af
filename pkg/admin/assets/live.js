// Keeps the page as the server has it: takes the parts that have changed, and leaves the focus where it was.
'use strict';
{
  const state = document.getElementById('live');
  const pause = document.getElementById('pause');
  let since = document.body.dataset.since;
  let source, again;

  const say = text => { if (state.textContent !== text) state.textContent = text; };

  const put = part => {
    const old = document.getElementById(part.id);
    if (!old) return;
    const holder = document.createElement('template');
    holder.innerHTML = part.html;
    const fresh = holder.content.firstElementChild;
    const focused = [...old.querySelectorAll('a')].indexOf(document.activeElement);
    old.replaceWith(fresh);
    if (focused >= 0) fresh.querySelectorAll('a')[focused]?.focus({preventScroll: true});
  };

  const follow = () => {
    source = new EventSource('/events?' + new URLSearchParams({shape: document.body.dataset.shape, since}));
    source.onopen = () => say('Live');
    source.onmessage = event => {
      since = event.lastEventId;
      JSON.parse(event.data).forEach(put);
    };
    // Another configuration has other parts. At most every few seconds: replicas behind one name may differ.
    source.addEventListener('reload', () => {
      source.close();
      setTimeout(() => location.reload(), Math.max(0, 5000 - performance.now()));
    });
    source.onerror = () => {
      say('Connection lost, trying again');
      if (source.readyState !== EventSource.CLOSED) return;
      again = setTimeout(follow, 5000);
    };
  };

  pause.hidden = false;
  pause.addEventListener('click', () => {
    const paused = pause.getAttribute('aria-pressed') === 'false';
    pause.setAttribute('aria-pressed', String(paused));
    source.close();
    clearTimeout(again);
    if (paused) say('Paused'); else follow();
  });
  follow();
}
