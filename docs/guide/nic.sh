#!/bin/sh
# Compares acknowledgement of writes by the XDP program with that by a worker, between two network
# namespaces that are joined by a veth (docs/guide/nic.md):
#
#   nic.sh serve   makes the namespaces and runs two servers there until Ctrl-C, then removes all
#   nic.sh draw    drives both and draws their latency against the load into report/index.html;
#                  further arguments go to `curtail bench`
#
# Needs root, iproute2 and, to draw, netcat. Without root or iproute2 both commands use loopback, and
# without root a thread takes the program's place in the first server. The binary is the one that
# CURTAIL names, or what was built here, or the one in the path.
set -eu

curtail=${CURTAIL:-$(dirname "$0")/../../target/release/curtail}
command -v "$curtail" >/dev/null || curtail=curtail
servers=curtail-nic-servers driver=curtail-nic-driver

# Executes a command in a network namespace, if the namespace exists, in place of this shell. Not `ip
# netns exec`, which hides /sys/fs/bpf.
inside() {
    namespace=/run/netns/$1
    shift
    if [ -e "$namespace" ]; then exec nsenter --net="$namespace" "$@"; else exec "$@"; fi
}

address() {
    if [ -e /run/netns/$servers ]; then echo 10.77.0.1; else echo 127.0.0.1; fi
}

make_link() {
    if [ -e /run/netns/$servers ]; then
        echo "$0 runs already, or was killed: ip netns del $servers; ip netns del $driver" >&2
        exit 1
    fi
    trap 'end_servers; remove_link' EXIT
    ip netns add $servers
    ip netns add $driver
    ip link add one netns $servers type veth peer name two netns $driver
    ip -n $servers addr add 10.77.0.1/24 dev one
    ip -n $driver addr add 10.77.0.2/24 dev two
    ip -n $servers link set one up
    ip -n $driver link set two up
}

serve() {
    interface=lo
    running=
    trap end_servers EXIT
    trap 'exit 0' INT TERM
    if [ "$(id -u)" = 0 ] && command -v ip >/dev/null; then
        make_link
        interface=one
    else
        echo "Not root, or no ip command: over loopback; the first server says who acknowledges."
    fi
    # A request takes a worker 10 us more, so that there is something to wait for.
    inside $servers "$curtail" serve -l "$(address)" --open-to-network -p 11211 --native 11311 \
        --native-interface $interface -o native_service_us=10 &
    running=$!
    inside $servers "$curtail" serve -l "$(address)" --open-to-network -p 11212 --native 11312 \
        --native-mode raw -o native_service_us=10 &
    running="$running $!"
    wait
}

# Stops the servers, which remove the XDP program from the interface themselves.
end_servers() {
    [ -z "$running" ] || kill $running 2>/dev/null || true
    wait || true
}

remove_link() {
    for namespace in $servers $driver; do
        if [ -e /run/netns/$namespace ]; then ip netns del $namespace; fi
    done
}

# Prints the value of the row native:$1 of the first server's `stats curtail`.
told() {
    printf 'stats curtail\r\nquit\r\n' | (inside $driver nc -w 5 "$(address)" 11211) |
        tr -d '\r' | sed -n "s/^STAT native:$1 //p"
}

# The driver polls (--spin), so that it does not measure its own wake-up. The page names who
# acknowledged: the mode that the server reports, checked by its count of accepted writes.
draw() {
    command -v nc >/dev/null || { echo "$0: nc (netcat) is needed to ask the server" >&2; exit 1; }
    mode=$(told mode)
    case $mode in
    xdp) label=program ;;
    io-ack)
        label=thread
        echo "$0: not the program but a thread acknowledges; the server's log says why" >&2
        ;;
    *) echo "$0: no server of this script answers at $(address):11211" >&2; exit 1 ;;
    esac
    before=$(told accepted)
    (inside $driver "$curtail" bench --protocol native --mark sets --get-ratio 0 \
        --target "$label=$(address):11311" --target "executed=$(address):11312" \
        --sweep 10k..60k/6 --spin --report report "$@")
    after=$(told accepted)
    if [ "$(told mode)" != "$mode" ] || [ "${after:-0}" -le "${before:-0}" ]; then
        echo "$0: the server acknowledged nothing early as $mode: report/ does not show the" \
            "$label" >&2
        exit 1
    fi
    echo "acknowledged by the $label: $((after - before)) writes; drawn in report/index.html"
}

case ${1:-} in
serve) serve ;;
draw) shift && draw "$@" ;;
*) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
