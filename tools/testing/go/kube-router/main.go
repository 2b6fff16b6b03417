// SPDX-License-Identifier: GPL-2.0-only

// Do to IPVS what kube-router does for an external address with direct server
// return, by the library that it uses.
package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/moby/ipvs"
)

const usage = `usage: kube-router [--graceful] SCHEDULER MARK 4|6 [SERVER:PORT]...

One sync of kube-router for a service by firewall mark: make the service, and
change its scheduler if that is not the wanted one; add each server, or edit it if
it is there; take those out that are not named.  A line for each call that changes
something.

  --graceful  as with --ipvs-graceful-termination: a server that is not named gets
              weight 0, and the next sync deletes it if it counts no connection
`

func name(d *ipvs.Destination) string {
	return net.JoinHostPort(d.Address.String(), strconv.Itoa(int(d.Port)))
}

// done reports a call; kube-router logs a failure and goes on with the next sync.
func done(call string, of string, err error) error {
	if err != nil {
		return fmt.Errorf("%s %s: %w", call, of, err)
	}
	fmt.Println(call, of)
	return nil
}

// service finds it by its mark alone.  A new one begins with rr, whatever is
// wanted, and with the length of a prefix for a netmask.
func service(handle *ipvs.Handle, scheduler string, mark uint32, family uint16,
	bits uint32) (*ipvs.Service, error) {
	label := strconv.FormatUint(uint64(mark), 10)
	all, err := handle.GetServices()
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.FWMark != mark {
			continue
		}
		if s.SchedName != scheduler {
			s.SchedName = scheduler
			err = done("update service", label, handle.UpdateService(s))
		}
		return s, err
	}
	s := &ipvs.Service{FWMark: mark, AddressFamily: family, Netmask: bits,
		SchedName: ipvs.RoundRobin}
	return s, done("add service", label, handle.NewService(s))
}

// server adds one; the kernel's word tells that it is there.
func server(handle *ipvs.Handle, s *ipvs.Service, d *ipvs.Destination) error {
	err := handle.NewDestination(s, d)
	if err != nil && strings.Contains(err.Error(), "file exists") {
		return done("update server", name(d), handle.UpdateDestination(s, d))
	}
	return done("add server", name(d), err)
}

// leave takes out one that is not wanted any more.
func leave(handle *ipvs.Handle, s *ipvs.Service, d *ipvs.Destination,
	graceful bool) error {
	if !graceful || d.Weight == 0 && d.ActiveConnections+d.InactiveConnections == 0 {
		return done("delete server", name(d), handle.DelDestination(s, d))
	}
	d.Weight = 0
	return done("drain server", name(d), handle.UpdateDestination(s, d))
}

func sync(graceful bool, scheduler string, mark uint32, version string,
	servers []string) error {
	family, bits := uint16(syscall.AF_INET), uint32(32)
	if version == "6" {
		family, bits = syscall.AF_INET6, 128
	}
	handle, err := ipvs.New("")
	if err != nil {
		return err
	}
	defer handle.Close()
	s, err := service(handle, scheduler, mark, family, bits)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, text := range servers {
		at, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			return err
		}
		d := &ipvs.Destination{Address: at.IP, AddressFamily: family,
			Port: uint16(at.Port), Weight: 1,
			ConnectionFlags: ipvs.ConnectionFlagTunnel}
		if err := server(handle, s, d); err != nil {
			return err
		}
		wanted[name(d)] = true
	}
	have, err := handle.GetDestinations(s)
	if err != nil {
		return err
	}
	for _, d := range have {
		if wanted[name(d)] {
			continue
		}
		if err := leave(handle, s, d, graceful); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	args := os.Args[1:]
	if len(args) == 1 && (args[0] == "-h" || args[0] == "--help") {
		fmt.Print(usage)
		return
	}
	graceful := len(args) > 0 && args[0] == "--graceful"
	if graceful {
		args = args[1:]
	}
	var mark uint64
	var err error
	if len(args) >= 3 {
		mark, err = strconv.ParseUint(args[1], 0, 32)
	}
	if len(args) < 3 || err != nil || args[2] != "4" && args[2] != "6" {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	if err := sync(graceful, args[0], uint32(mark), args[2], args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "kube-router:", err)
		os.Exit(1)
	}
}
