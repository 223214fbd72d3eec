#!/bin/sh
# See that there is a Chromium for the browser tests: install Debian's where we may. Without one those tests skip and say so.
set -eu

for name in chromium chromium-browser google-chrome; do
    if command -v "$name" >/dev/null; then exit 0; fi
done

as_root=
if [ "$(id -u)" != 0 ]; then as_root="sudo -n"; fi
if command -v apt-get >/dev/null && $as_root true 2>/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    wait_for_lock="-o DPkg::Lock::Timeout=120"
    if $as_root apt-get update -qq && $as_root apt-get install -qq -y --no-install-recommends $wait_for_lock chromium >/dev/null; then
        exit 0
    fi
fi
echo "No Chromium, and none could be installed: the browser tests will be skipped. Install the package chromium to run them." >&2
