// Package page proves the status page in a real Chromium: an outage on a real Envoy, the actions by keyboard alone, and
// that axe-core finds nothing serious. scripts/page.sh runs its tests, with all that they need.
package page
