"""The Singer tap as PyPI has it, with nothing changed but the host that it asks: tap.py HOST, and its options."""

import sys

import tap_appsflyer
from tap_appsflyer.client import Client

host = sys.argv.pop(1)
began = Client.__init__


def begin(self, config):
    began(self, config)
    self.base_url = host


Client.__init__ = begin
tap_appsflyer.main()
