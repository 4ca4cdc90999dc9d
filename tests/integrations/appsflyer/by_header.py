"""Reads a report by its header, as Airbyte's source does, and prints its records as JSON lines: by_header.py URL TOKEN."""

import csv
import json
import sys

import requests

url, token = sys.argv[1:]
response = requests.get(url, headers={"Authorization": f"Bearer {token}"})
response.raise_for_status()
lines = (line.decode("utf-8") for line in response.iter_lines())
for record in csv.DictReader(lines):
    print(json.dumps(record))
