#!/bin/sh
# A click and the activation that it caused, in JSON, sent by kcat (Debian: apt-get install kcat).
#   $ sh kcat.sh
# Set in the environment: KAFKA, CLICKS and ACTIVATIONS, where they are others than these.
set -eu
kafka=${KAFKA:-127.0.0.1:9092}
clicks=${CLICKS:-adtrail.clicks}
activations=${ACTIVATIONS:-adtrail.activations}

# What is before the | is the message's key: the app's.
send() { kcat -P -b "$kafka" -t "$1" -K '|'; }

now=$(date +%s%3N)
device=1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5
echo 'app-x|{"app": "app-x", "click_id": "kcat-c-1", "spreadid": 7,
  "time": '$((now - 60000))', "ids": {"oaid": "'$device'"}}' | tr -d '\n' | send "$clicks"
echo 'app-x|{"app": "app-x", "event_id": "kcat-a-1",
  "time": '"$now"', "ids": {"oaid": "'$device'"}}' | tr -d '\n' | send "$activations"
