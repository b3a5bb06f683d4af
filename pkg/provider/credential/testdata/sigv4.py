"""Signs calls with botocore, which shares no code with the signer under test.

Standard input: a JSON list of calls. Standard output: the list of their Authorization headers.
"""

import datetime
import json
import sys
from unittest import mock
from urllib.parse import parse_qsl

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials


def authorization(call):
    path, _, query = call["path"].partition("?")
    request = AWSRequest(
        method=call["method"],
        url="https://" + call["host"] + path,
        # Decoded, so that botocore does all of the encoding, as a service that has read the query does.
        params=parse_qsl(query, keep_blank_values=True),
        data=call["body"].encode(),
    )
    request.headers["host"] = call["host"]
    for name, value in call["headers"] or []:
        request.headers[name] = value
    credentials = Credentials(call["key"], call["secret"], call["token"] or None)
    now = datetime.datetime.strptime(call["time"], "%Y%m%dT%H%M%SZ")
    with mock.patch("botocore.auth.get_current_datetime", lambda: now):
        SigV4Auth(credentials, call["service"], call["region"]).add_auth(request)
    return request.headers["Authorization"]


json.dump([authorization(call) for call in json.load(sys.stdin)], sys.stdout)
