#!/bin/sh
# Runs a worker from a properties file, under the container's host name, by which the other workers reach it.
# A property that differs from worker to worker belongs into the environment: MILLRACE_PROPERTY_<name with _ for .>=value
# is appended to the file, so it wins.
set -eu

config=$(mktemp)
cat -- "$1" >"$config"
shift
printf '\nrest.advertised.host.name=%s\n' "$(hostname)" >>"$config"
# A properties file takes backslashes for escapes; a key or certificate in PEM has several lines.
env -0 | sed -zn 's/\\/\\\\/g; s/\n/\\n/g; s/^MILLRACE_PROPERTY_\([A-Za-z0-9_]*\)=/\1\n/p' | tr '\0' '\n' |
    while read -r name && IFS= read -r value; do
        printf '%s=%s\n' "$(printf '%s' "$name" | tr 'A-Z_' 'a-z.')" "$value"
    done >>"$config"

# exec: the worker gets the signals of `docker stop` itself.
exec millrace worker "$config" "$@"
