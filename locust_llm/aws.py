"""Signing requests for AWS, version 4, with botocore: an extra, loaded only where a server wants it.

Credentials and region are found as botocore finds them (variables, profile, role of the machine), on each node; nothing
of them is an option. A signature is made before the clock of its request starts and is good for five minutes.
"""

from __future__ import annotations

import os
import re

from .errors import UsageError
from .wire.api import Sign

_SERVICE = "bedrock"


def signer(host: str) -> Sign:
    """Return what signs requests to a host.

    Args:
        host: its name; that of an AWS endpoint tells the region.

    Raises:
        UsageError: botocore, the region or credentials are missing.
    """
    try:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError
        from botocore.session import get_session
    except ImportError:
        raise UsageError(
            "Bedrock wants signed requests: pip install 'locust-llm[bedrock]', "
            "or put a Bedrock API key into LOCUST_LLM_API_KEY"
        ) from None
    try:
        session = get_session()
        region = region_of(host) or os.environ.get("AWS_REGION") or session.get_config_variable("region")
        credentials = session.get_credentials()
    except BotoCoreError as e:
        raise UsageError(f"AWS credentials: {e}") from None
    if not region:
        raise UsageError(f"--host {host} names no AWS region: set AWS_REGION")
    if credentials is None:
        raise UsageError("no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")

    def sign(method: str, url: str, body: bytes) -> list[tuple[str, str]]:
        request = AWSRequest(method, url, data=body, headers={"Content-Type": "application/json"})
        try:
            SigV4Auth(credentials, _SERVICE, region).add_auth(request)
        except BotoCoreError as e:  # a role or a login that could not be renewed
            raise UsageError(f"AWS credentials: {e}") from None
        return [(name, str(value)) for name, value in request.headers.items()]

    return sign


def region_of(host: str) -> str | None:
    """Return the region in the name of an AWS endpoint (``bedrock-runtime.eu-west-1.amazonaws.com``), if it is one."""
    match = re.search(r"(?:^|\.)bedrock-runtime(?:-fips)?\.([a-z]{2}(?:-[a-z]+)+-\d+)\.", host)
    return match[1] if match else None
