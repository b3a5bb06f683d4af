#!/bin/sh
# need.sh PACKAGE PROGRAM… installs a Debian package, unless every one of these programs is here.
set -eu
package=$1
shift
for program; do # one by one: command -v with several names is content with any of them
	command -v "$program" >/dev/null && continue
	apt-get update -qq >&2
	# RUNLEVEL=1 keeps the package from starting a daemon of its own, for Docker on the host's network.
	RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive exec apt-get install -y -qq --no-install-recommends "$package" >&2
done
