# SPDX-License-Identifier: GPL-2.0-only
"""The columns as metrics, in the text format of Prometheus."""

from . import lane
from .address import endpoint

_LANE_PACKETS = "ipvs_mhs_lane_packets_total"

# name, type, help, [(labels, field, unit in which the field counts)]
_METRICS = (
    ("ipvs_mhs_servers", "gauge", "Servers in the list, whatever their weight.",
     [({}, "servers", 1)]),
    ("ipvs_mhs_gone_servers", "gauge", "Deleted servers that are still held.",
     [({}, "gone_servers", 1)]),
    ("ipvs_mhs_servers_without_slot", "gauge",
     "Servers whose share of the table is less than a slot.",
     [({}, "servers_without_slot", 1)]),
    ("ipvs_mhs_slots", "gauge", "Slots of the lookup table by phase.",
     [({"phase": "stable"}, "stable_slots", 1),
      ({"phase": "hold"}, "hold_slots", 1),
      ({"phase": "pin"}, "pin_slots", 1)]),
    ("ipvs_mhs_tracked_slots", "gauge",
     "Slots whose packets are looked up in the connection table.",
     [({}, "tracked_slots", 1)]),
    ("ipvs_mhs_next_merge_seconds", "gauge",
     "Time until the next slots merge, 0 if none is due.",
     [({}, "next_merge_ms", 1e-3)]),
    ("ipvs_mhs_stable_seconds", "gauge",
     "Time until all slots are stable, at most, 0 if they are.",
     [({}, "stable_ms", 1e-3)]),
    ("ipvs_mhs_stateful", "gauge",
     "1 if every flow gets an entry (net.ipv4.vs.mhs.stateless=0).",
     [({}, "stateful", 1)]),
    ("ipvs_mhs_stateful_seconds", "gauge",
     "Time until every flow that lives has an entry, at most, 0 if all have "
     "one, or if ipvs_mhs_stateful is 0.",
     [({}, "stateful_ms", 1e-3)]),
    ("ipvs_mhs_entries", "gauge",
     "Live connection entries of the servers.", [({}, "entries", 1)]),
    ("ipvs_mhs_build_seconds", "gauge",
     "Time that the last computation of the table took.",
     [({}, "build_us", 1e-6)]),
    ("ipvs_mhs_packets_total", "counter",
     "Packets by what decided where they go.",
     [({"kind": kind}, f"packets_{kind}", 1)
      for kind in ("stateless", "old", "candidate", "tracked", "icmp",
                   "by_id")]),
    ("ipvs_mhs_no_id_packets_total", "counter",
     "Packets whose QUIC connection ID names no server; also counted above.",
     [({}, "packets_no_id", 1)]),
    (_LANE_PACKETS, "counter",
     "Packets that the lane forwarded before the IP stack.",
     [({}, "packets_lane", 1)]),
    ("ipvs_mhs_silent_servers", "gauge",
     "Servers that do not answer, of services with the second chance.",
     [({}, "silent_servers", 1)]),
    ("ipvs_mhs_chance_packets_total", "counter",
     "Packets that servers sent back, by what became of them.",
     [({"kind": kind}, f"chance_{kind}", 1)
      for kind in ("asked", "reset", "dropped")]),
    ("ipvs_mhs_unsettled_packets_total", "counter",
     "Packets dropped because the table was not final.",
     [({}, "packets_unsettled", 1)]),
    ("ipvs_mhs_entries_made_total", "counter",
     "Connection entries made, by cause.",
     [({"cause": "new"}, "new_entries", 1),
      ({"cause": "pinned"}, "pinned_entries", 1)]),
    ("ipvs_mhs_capped_total", "counter",
     "Entries not made because of a limit.", [({}, "capped", 1)]),
    ("ipvs_mhs_no_memory_total", "counter",
     "Entries, servers or carriers there was no memory for.",
     [({}, "no_memory", 1)]),
)
_STATE = ("ipvs_mhs_state", "gauge", "1 for the state the service is in; 0 for "
          "stable if it is not.")
_INFO = ("ipvs_mhs_table_info", "gauge",
         "1; the labels are the fingerprints of the two tables, and whether "
         "only the address is hashed.")
_LANE = ("ipvs_mhs_lane_up_total", "counter",
         "Frames that the lane left to the IP stack, by reason.")
_UP = ("ipvs_mhs_up", "gauge", "1 if the module is there, 0 if it is not.")

_ALL = (_UP, *_METRICS, _LANE, _STATE, _INFO)
NAMES = [metric[0] for metric in _ALL]


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
_SERIES = [(name, _labels(labels), field, unit)
           for name, _, _, series in _METRICS for labels, field, unit in series]


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
        yield (_STATE[0], f"{own},{_labels({'state': state})}",
               int(service["state"] == state))
    if "old_print" in service and "candidate_print" in service:
        yield (_INFO[0], f"{own}," + _labels({
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
    lines[_UP[0]][_UP[0]] = int(services is not None)
    # a lane has seen a frame
    seen = any((frames or {}).values()) or \
        any(s.get("packets_lane") for s in services or ())
    for service in services or ():
        for name, labels, value in _samples(service):
            lines[name].setdefault(f"{name}{{{labels}}}", value)
    for reason, n in lane.reasons(frames or {} if seen else {}):
        lines[_LANE[0]][f"{_LANE[0]}{{{_labels({'reason': reason})}}}"] = n
    page = []
    for name, kind, text, *_ in _ALL:
        if lines[name]:
            page += [f"# HELP {name} {text}", f"# TYPE {name} {kind}",
                     *(f"{series} {value}"
                       for series, value in lines[name].items())]
    return "\n".join(page) + "\n"
