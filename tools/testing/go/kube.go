// SPDX-License-Identifier: GPL-2.0-only

// Do to IPVS what kube-proxy does, by the library that it uses.
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

const usage = `usage: kube SCHEDULER ADDRESS:PORT [SERVER:PORT]...

One round of kube-proxy: make the service what it should be, add servers that
are missing, and take those out that are not named: at once if they count no
connection, otherwise with weight 0, and a later round deletes them.  A line for
each call that changes something.
`

// portHash is what kube-proxy asks of mh, and of no other scheduler.
const portHash = 0x10

func endpoint(text string) (net.IP, uint16, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return nil, 0, err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", text, err)
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return nil, 0, fmt.Errorf("%s: no address", text)
	}
	return ip, uint16(number), nil
}

func name(d *ipvs.Destination) string {
	return net.JoinHostPort(d.Address.String(), strconv.Itoa(int(d.Port)))
}

// done reports a call; kube-proxy logs a failure and tries again later.
func done(call string, of string, err error) error {
	if err != nil {
		return fmt.Errorf("%s %s: %w", call, of, err)
	}
	fmt.Println(call, of)
	return nil
}

func service(handle *ipvs.Handle, scheduler, address string) (*ipvs.Service, error) {
	ip, port, err := endpoint(address)
	if err != nil {
		return nil, err
	}
	want := &ipvs.Service{Address: ip, Port: port, Protocol: syscall.IPPROTO_TCP,
		SchedName: scheduler}
	if ip.To4() != nil {
		want.AddressFamily, want.Netmask = syscall.AF_INET, 0xffffffff
	} else {
		want.AddressFamily, want.Netmask = syscall.AF_INET6, 128
	}
	if scheduler == "mh" {
		want.Flags = portHash
	}
	have, err := handle.GetService(want)
	if err != nil || have == nil {
		return want, done("add service", address, handle.NewService(want))
	}
	// the kernel's own mark of a service that is hashed
	if have.SchedName != want.SchedName || have.Flags&^0x2 != want.Flags {
		return want, done("update service", address, handle.UpdateService(want))
	}
	return want, nil
}

// leave is the graceful termination of a server.
func leave(handle *ipvs.Handle, s *ipvs.Service, d *ipvs.Destination) error {
	if d.ActiveConnections+d.InactiveConnections == 0 {
		return done("delete server", name(d), handle.DelDestination(s, d))
	}
	if d.Weight == 0 {
		return nil
	}
	d.Weight = 0
	return done("update server", name(d), handle.UpdateDestination(s, d))
}

func round(scheduler, address string, servers []string) error {
	handle, err := ipvs.New("")
	if err != nil {
		return err
	}
	defer handle.Close()
	s, err := service(handle, scheduler, address)
	if err != nil {
		return err
	}
	have, err := handle.GetDestinations(s)
	if err != nil {
		return err
	}
	there := map[string]*ipvs.Destination{}
	for _, d := range have {
		there[name(d)] = d
	}
	for _, text := range servers {
		ip, port, err := endpoint(text)
		if err != nil {
			return err
		}
		d := &ipvs.Destination{Address: ip, Port: port, Weight: 1,
			ConnectionFlags: ipvs.ConnectionFlagMasq}
		old := there[name(d)]
		delete(there, name(d))
		switch {
		case old == nil:
			err = done("add server", text, handle.NewDestination(s, d))
		case old.Weight != 1:
			err = done("update server", text, handle.UpdateDestination(s, d))
		}
		if err != nil {
			return err
		}
	}
	for _, d := range there {
		if err := leave(handle, s, d); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if len(os.Args) < 3 || strings.HasPrefix(os.Args[1], "-") {
		fmt.Fprint(os.Stderr, usage)
		if len(os.Args) == 2 && (os.Args[1] == "-h" || os.Args[1] == "--help") {
			return
		}
		os.Exit(2)
	}
	if err := round(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		os.Exit(1)
	}
}
