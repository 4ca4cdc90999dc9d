"""Runs the Singer tap from PyPI with another host: tap.py HOST OPTIONS."""

import sys

import tap_appsflyer
from tap_appsflyer.client import Client

host = sys.argv.pop(1)
original_init = Client.__init__


def init(self, config):
    original_init(self, config)
    self.base_url = host


Client.__init__ = init
tap_appsflyer.main()
