#!/bin/sh
# See that a program for tests is there: install Debian's package where we may. Without it those tests skip and say so.
# Usage: debian_package.sh PACKAGE WHICH_TESTS [COMMAND…], where the package has a command of its name, and any of the
# others will do where it cannot be installed.
set -eu
package=$1 tests=$2
shift 2

# Debian puts some where only root looks.
PATH="$PATH:/usr/sbin:/usr/local/sbin"
if command -v "$package" >/dev/null; then exit 0; fi

as_root=
if [ "$(id -u)" != 0 ]; then as_root="sudo -n"; fi
if command -v apt-get >/dev/null && $as_root true 2>/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    wait_for_lock="-o DPkg::Lock::Timeout=120"
    if $as_root apt-get update -qq && $as_root apt-get install -qq -y --no-install-recommends $wait_for_lock "$package" >/dev/null; then
        exit 0
    fi
fi
for name in "$@"; do
    if command -v "$name" >/dev/null; then exit 0; fi
done
echo "No $package, and none could be installed: $tests will be skipped. Install the package $package to run them." >&2
