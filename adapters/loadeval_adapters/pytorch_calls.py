"""What a batch is fetched with: files opened, connections made, and HTTP requests."""

from __future__ import annotations

import io
import os
import socket
import sys
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any

from loadeval_adapters.pytorch_channel import UNKNOWN

if TYPE_CHECKING:
    from types import FrameType

Calls = tuple[int, int, int]
"""Files opened, connections over the internet protocol, requests of http.client."""
UNCOUNTED: Calls = (UNKNOWN,) * 3
OPENS = (io.open, os.open)  # the former is the builtin, too
REQUEST = HTTPConnection.putrequest.__code__
"""urllib, urllib3, requests and botocore all come by it."""
EVENT_NS = 500
"""What seeing a call, or its return, takes."""
INTERNET = (socket.AF_INET, socket.AF_INET6)


class CallCounter:
    """Counts what this thread calls between `start` and `stop`.

    Meanwhile each call takes 0.2 to 1 us longer, so this is for one batch, of which it takes up
    to half its time. An audit hook would see all threads, but it stays for good, and is called for
    each `id()`: `copy.deepcopy` takes twice as long with one.
    """

    def __init__(self) -> None:
        self._opened = self._connected = self._requested = self._left = 0
        self._profile = self._count

    def start(self, batch_ns: int) -> None:
        """Count in a batch that takes some `batch_ns`, unless somebody profiles this thread."""
        self._left = batch_ns // (2 * EVENT_NS)
        if sys.getprofile() is None:
            sys.setprofile(self._profile)

    def stop(self) -> Calls:
        """Count no more, and tell.

        UNCOUNTED where there were too many calls, or somebody else profiled meanwhile.
        """
        if sys.getprofile() is not self._profile:
            return UNCOUNTED
        sys.setprofile(None)
        return self._opened, self._connected, self._requested

    def _count(self, frame: FrameType, event: str, called: Any) -> None:
        self._left -= 1
        if self._left < 0:
            sys.setprofile(None)
        elif event == "c_call":
            if called in OPENS:
                self._opened += 1
            elif called.__name__ in {"connect", "connect_ex"}:
                of_socket = getattr(called, "__self__", None)
                self._connected += getattr(of_socket, "family", None) in INTERNET
        elif event == "call" and frame.f_code is REQUEST:
            self._requested += 1
