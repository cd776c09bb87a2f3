#!/bin/sh
# Prepares the environment of the tests; nextest runs it first (.config/nextest.toml). Tests write their files to memory if
# there is room, so that they do not wait for the disk.
set -eu

# Freed memory stays with its process, because the kernel would have to clear it again for the next allocation.
echo GLIBC_TUNABLES=glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=268435456 >>"$NEXTEST_ENV"

if [ -n "${TMPDIR:-}" ]; then exit 0; fi
room=$(df --output=avail -k /dev/shm 2>/dev/null | tail -1)
free=$(awk '/MemAvailable/ {print $2}' /proc/meminfo 2>/dev/null || echo 0)
bound=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
if [ "${room:-0}" -le $((8 << 20)) ] || [ "${free:-0}" -le $((12 << 20)) ]; then exit 0; fi
if [ "$bound" != max ] && [ "$bound" -le $((16 << 30)) ]; then exit 0; fi
memory=$(mktemp -d /dev/shm/sgs-tests-XXXXXX) || exit 0
chmod 711 "$memory" # A test reads a run as another user.
# Remove the folder when nextest, the parent process, has ended.
setsid sh -c 'while kill -0 "$1"; do sleep 1; done; rm -rf "$2"' sh "$PPID" "$memory" </dev/null >/dev/null 2>&1 &
# The memory file system may forbid running programs, which tests do.
printf '#!/bin/sh\n' >"$memory/probe"
chmod +x "$memory/probe"
if "$memory/probe" 2>/dev/null; then echo "TMPDIR=$memory" >>"$NEXTEST_ENV"; fi
