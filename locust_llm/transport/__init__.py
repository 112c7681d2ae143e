"""HTTP over gevent with an arrival stamp per read: dialling, a keep-alive pool, deadlines, TLS, proxies."""

from .dial import Route, route_to
from .transfer import Transfer
from .transport import Transport

__all__ = ["Route", "Transfer", "Transport", "route_to"]
