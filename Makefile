# SPDX-License-Identifier: GPL-2.0-only
# ip_vs_mhs: `make help` lists the targets.

RELEASE := $(shell uname -r)
KDIR ?= /lib/modules/$(RELEASE)/build
INSTALL_MOD_PATH ?= $(DESTDIR)

SOURCES := $(CURDIR)/net/netfilter/ipvs
MACHINE := tools/testing/machine
UNIT := tools/testing/unit
SELFTESTS := tools/testing/selftests/net/ipvs_mhs
QDISC_TESTS := tools/testing/selftests/net/qdisc_tool
# a test says what it weighs, files that tests source do not
tests-in = $(shell grep -lE '^\# weight: [0-9]' $(1)/*)
TESTS ?= $(call tests-in,$(SELFTESTS)) $(call tests-in,$(QDISC_TESTS))

# Without KERNEL= the module is for KDIR; machines run 6.1 then.
machine-kernel := $(or $(KERNEL),6.1)
kdir-release = $(shell cat $(KDIR)/include/config/kernel.release 2>/dev/null)
mod-dir = $(INSTALL_MOD_PATH)/lib/modules/$(kdir-release)

.PHONY: all
all: module

##@ The module, for the running kernel (KDIR=DIR: for the headers in DIR)

.PHONY: module
ifdef KERNEL
module: setup	## build ip_vs_mhs.ko (KERNEL=NAME: for a machine's kernel)
	$(MACHINE)/build-module $(KERNEL)
else
module: check-kdir
	$(MAKE) -C $(KDIR) M=$(SOURCES) W=1 modules
endif

.PHONY: check-kdir
check-kdir:
	@[ -e $(KDIR)/Makefile ] || { echo "No kernel headers in $(KDIR): \
	install the package linux-headers-$(RELEASE), or name their directory \
	with KDIR=." >&2; exit 1; }
	@grep -qsE '^CONFIG_IP_VS=[ym]' $(KDIR)/include/config/auto.conf \
	$(KDIR)/.config || { echo "The kernel of $(KDIR) is built without \
	CONFIG_IP_VS, which ip_vs_mhs needs: use another kernel." >&2; exit 1; }

.PHONY: install
install: module	## install it where `ipvsadm -s mhs` loads it (DESTDIR=)
	install -D -m 644 $(SOURCES)/ip_vs_mhs.ko \
		$(mod-dir)/updates/ip_vs_mhs.ko
	@$(run-depmod)

.PHONY: uninstall
uninstall: check-kdir	## remove it again
	rm -f $(mod-dir)/updates/ip_vs_mhs.ko
	@$(run-depmod)

# A staging directory without modules has no use for depmod.
run-depmod = [ ! -e $(mod-dir)/modules.order ] || \
	depmod $(if $(INSTALL_MOD_PATH),-b $(INSTALL_MOD_PATH)) $(kdir-release)

##@ Tests, in virtual machines (KERNEL=NAME: one of tools/testing/machine/kernels)

.PHONY: setup
setup:	## install what is needed, unpack the kernel; quick when done before
	@$(MACHINE)/setup $(machine-kernel)

.PHONY: uml
uml: setup	## build a User-Mode Linux kernel: native speed (DEBUG=1: sanitizers)
	@$(MACHINE)/build-uml $(if $(DEBUG),--debug)
	@$(MACHINE)/build-module uml$(if $(DEBUG),-debug)

.PHONY: check
check: setup	## all tests on the kernel 6.1
	@+$(MACHINE)/steps check-harness check-unit style \
		"check-module KERNEL=6.1" "test KERNEL=6.1"

.PHONY: check-all
check-all: setup	## all tests on all kernels
	@+$(MACHINE)/steps check-harness check-unit style \
		$(foreach k,$(shell $(MACHINE)/setup --list),\
			"check-module KERNEL=$(k)" "test KERNEL=$(k)")

.PHONY: test
test: setup	## kselftests in the machine (TESTS="FILE...": only these)
	@$(MACHINE)/build-module $(machine-kernel)
	@$(MACHINE)/run --kernel $(machine-kernel) $(TESTS)

# seconds of torture, hostile packets
test-long: export MHS_TORTURE_S ?= 1800
test-long: export MHS_PACKETS ?= 1000000

.PHONY: test-long
test-long: setup	## half an hour of stress, a million hostile packets (MHS_TORTURE_S=, MHS_PACKETS=)
	@$(MACHINE)/build-module $(machine-kernel)
	@$(MACHINE)/run --kernel $(machine-kernel) --slow 8 \
		$(SELFTESTS)/torture.sh $(SELFTESTS)/hostile.sh

.PHONY: check-qdisc
check-qdisc: setup	## those of qdisc_tool only
	@$(MACHINE)/build-module $(machine-kernel)
	@$(MACHINE)/run --kernel $(machine-kernel) \
		$(call tests-in,$(QDISC_TESTS))

.PHONY: check-module
check-module: setup	## build with every warning an error, with sparse
	@$(MACHINE)/build-module --check $(machine-kernel)

.PHONY: check-unit
check-unit: setup	## unit tests of the tables in user space
	@$(MACHINE)/tally $(MAKE) -s --no-print-directory -C $(UNIT) check

.PHONY: check-harness
check-harness: setup	## tests of the machine runner on recorded logs
	@$(MACHINE)/selftest/run

.PHONY: check-harness-vm
check-harness-vm: setup	## tests of the machine runner in a machine, 3 minutes
	@$(MACHINE)/selftest/run --vm $(machine-kernel)

.PHONY: style
style: setup	## checkpatch and shellcheck; no output is good
	@$(MACHINE)/style

##@ Measurements

.PHONY: bench bench-full
bench: uml	## what mhs saves, with pictures, a quarter of an hour (BENCH="SECTION...": these)
	@$(MACHINE)/setup --plots 6.1
	@$(MACHINE)/build-module 6.1
	@build/venv/bin/python -B tools/testing/bench/run $(BENCH)

bench-full:	## the same with more cases and rounds, about an hour
	@$(MAKE) -s bench BENCH="--full $(BENCH)"

.PHONY: bench-reload
bench-reload: setup	## haproxy reloaded under load in four ways (BENCH="--kernel uml ...")
	@$(MACHINE)/setup --plots $(machine-kernel)
	@tools/testing/bench/reload/run --kernel $(machine-kernel) $(BENCH)

.PHONY: bench-cases
bench-cases: setup	## entries and packets by kind of service, mh beside mhs
	@$(MACHINE)/build-module $(machine-kernel)
	@$(MACHINE)/run --kernel $(machine-kernel) \
		--exec tools/testing/bench/cases.sh

##@ To try it

.PHONY: demo
demo: setup	## mh and mhs side by side under load
	@$(MACHINE)/build-module $(machine-kernel)
	@$(MACHINE)/demo/run

.PHONY: shell
shell: setup	## a shell in the machine
	@$(MACHINE)/build-module $(machine-kernel)
	@$(MACHINE)/run --kernel $(machine-kernel) --shell

##@ Cleaning

.PHONY: clean
clean:	## remove what was built, keep what was fetched
	find net include -name '*.o' -o -name '*.ko' -o -name '*.mod' \
		-o -name '*.mod.c' -o -name '.*.cmd' -o -name '.*.d' \
		-o -name Module.symvers -o -name modules.order | xargs -r rm -f
	rm -rf build/run build/check build/kernel/*/module
	$(MAKE) -s -C $(UNIT) clean

.PHONY: distclean
distclean: clean	## remove build/ altogether
	rm -rf build

.PHONY: help
help:	## this list
	@awk -F ':.*## ' '/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' Makefile
