#!/bin/sh
# See that there is a broker for the tests of MQTT: install Debian's where we may. Without one those tests skip and say so.
set -eu

# Debian puts it where only root looks.
PATH="$PATH:/usr/sbin:/usr/local/sbin"
if command -v mosquitto >/dev/null; then exit 0; fi

as_root=
if [ "$(id -u)" != 0 ]; then as_root="sudo -n"; fi
if command -v apt-get >/dev/null && $as_root true 2>/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    wait_for_lock="-o DPkg::Lock::Timeout=120"
    if $as_root apt-get update -qq && $as_root apt-get install -qq -y --no-install-recommends $wait_for_lock mosquitto >/dev/null; then
        exit 0
    fi
fi
echo "No mosquitto, and none could be installed: the tests of MQTT will be skipped. Install the package mosquitto to run them." >&2
