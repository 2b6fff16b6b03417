# SPDX-License-Identifier: GPL-2.0-only
"""The columns as metrics, in the text format of Prometheus."""

from . import lane
from .address import endpoint

# name without its beginning: (help, field of a service), or the name of a label and
# {its value: field}; a name that ends in _total is a counter's
_METRICS = {
    "servers": ("Servers in the list, whatever their weight.", "servers"),
    "gone_servers": ("Deleted servers that are still held.", "gone_servers"),
    "servers_without_slot": ("Servers whose share of the table is less than a slot.",
                             "servers_without_slot"),
    "slots": ("Slots of the lookup table by phase.", "phase", {
        phase: f"{phase}_slots" for phase in ("stable", "hold", "pin")}),
    "tracked_slots": ("Slots whose packets are looked up in the connection table.",
                      "tracked_slots"),
    "next_merge_seconds": ("Time until the next slots merge, 0 if none is due.",
                           "next_merge_ms"),
    "stable_seconds": ("Time until all slots are stable, at most, 0 if they are.",
                       "stable_ms"),
    "stateful": ("1 if every flow gets an entry (net.ipv4.vs.mhs.stateless=0).",
                 "stateful"),
    "stateful_seconds": ("Time until every flow that lives has an entry, at most, 0 if "
                         "all have one, or if ipvs_mhs_stateful is 0.", "stateful_ms"),
    "entries": ("Live connection entries of the servers.", "entries"),
    "build_seconds": ("Time that the last computation of the table took.", "build_us"),
    "packets_total": ("Packets by what decided where they go.", "kind", {
        kind: f"packets_{kind}" for kind in ("stateless", "old", "candidate",
                                             "tracked", "icmp", "by_id")}),
    "no_id_packets_total": ("Packets whose QUIC connection ID names no server; also "
                            "counted above.", "packets_no_id"),
    "lane_packets_total": ("Packets that the lane forwarded before the IP stack.",
                           "packets_lane"),
    "silent_servers": ("Servers that do not answer, of services with the second "
                       "chance.", "silent_servers"),
    "chance_packets_total": ("Packets that servers sent back, by what became of them.",
                             "kind", {kind: f"chance_{kind}" for kind in
                                      ("asked", "reset", "dropped")}),
    "unsettled_packets_total": ("Packets dropped because the table was not final.",
                                "packets_unsettled"),
    "entries_made_total": ("Connection entries made, by cause.", "cause", {
        "new": "new_entries", "pinned": "pinned_entries"}),
    "capped_total": ("Entries not made because of a limit.", "capped"),
    "no_memory_total": ("Entries, servers or carriers there was no memory for.",
                        "no_memory"),
}
_UP, _LANE, _STATE, _INFO = (f"ipvs_mhs_{name}" for name in (
    "up", "lane_up_total", "state", "table_info"))
# in the order of the page
_HELP = {
    _UP: "1 if the module is there, 0 if it is not.",
    **{f"ipvs_mhs_{name}": text for name, (text, *_) in _METRICS.items()},
    _LANE: "Frames that the lane left to the IP stack, by reason.",
    _STATE: "1 for the state the service is in; 0 for stable if it is not.",
    _INFO: "1; the labels are the fingerprints of the two tables, and whether only "
           "the address is hashed.",
}
NAMES = [*_HELP]
_UNITS = {"ms": 1e-3, "us": 1e-6}   # of a field, by its last letters


# Samples of 0 that are written: alarms ask for them, and the increase of a counter
# that begins late is not seen.  All others are left out.
_ZEROS = {"servers", "packets_unsettled", "capped", "no_memory"}


def _labels(labels):
    def escaped(value):
        return (str(value).replace("\\", r"\\").replace('"', r'\"')
                .replace("\n", r"\n"))
    return ",".join(f'{name}="{escaped(value)}"'
                    for name, value in labels.items())


def _own(service):
    """The labels of node_exporter's node_ipvs_backend_*; then an older one, which
    goes with the next version, and the service in one word."""
    labels = {"proto": service["protocol"], "local_address": "", "local_port": "0"}
    if service["protocol"] == "FWM":
        labels["local_mark"] = f"{int(service['address']):08X}"
    else:
        address, port = endpoint(service["address"])
        labels.update(local_address=address, local_port=port)
    return _labels({**labels, "protocol": service["protocol"],
                    "service": service["address"]})


# (metric, labels, field, unit)
_SERIES = [(f"ipvs_mhs_{name}", label and _labels({label[0]: value}), field,
            _UNITS.get(field.rpartition("_")[2], 1))
           for name, (_, *label, fields) in _METRICS.items()
           for value, field in (fields if label else {"": fields}).items()]


def _samples(service):
    """(metric, labels, value) of one service."""
    own = _own(service)
    for name, labels, field, unit in _SERIES:
        value = service.get(field)
        if isinstance(value, list):
            value = len(value)
        if value or value is not None and field in _ZEROS:
            yield name, f"{own},{labels}" if labels else own, \
                value if unit == 1 else f"{value * unit:.10g}"
    for state in {"stable": 0, service["state"]: 0}:
        yield (_STATE, f"{own},{_labels({'state': state})}",
               int(service["state"] == state))
    if "old_print" in service and "candidate_print" in service:
        yield (_INFO, f"{own}," + _labels({
            "old": service["old_print"],
            "candidate": service["candidate_print"],
            **({"address_only": service["address_only"]}
               if "address_only" in service else {})}), 1)


def render(services, frames=None):
    """The whole page; @services is None if the module is missing, @frames are
    those that the lane saw.  A name that two services share (a firewall mark in
    both families) has the samples of the first alone: twice would be an
    error."""
    lines = {name: {} for name in NAMES}
    lines[_UP][_UP] = int(services is not None)
    # a lane has seen a frame
    seen = any((frames or {}).values()) or \
        any(s.get("packets_lane") for s in services or ())
    for service in services or ():
        for name, labels, value in _samples(service):
            lines[name].setdefault(f"{name}{{{labels}}}", value)
    for reason, n in lane.reasons(frames or {} if seen else {}):
        lines[_LANE][f"{_LANE}{{{_labels({'reason': reason})}}}"] = n
    page = []
    for name, text in _HELP.items():
        if lines[name]:
            kind = "counter" if name.endswith("_total") else "gauge"
            page += [f"# HELP {name} {text}", f"# TYPE {name} {kind}",
                     *(f"{series} {value}"
                       for series, value in lines[name].items())]
    return "\n".join(page) + "\n"
