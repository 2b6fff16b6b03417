# SPDX-License-Identifier: GPL-2.0-only
# ip_vs_mhs: `make help` lists the targets.  Checks and measurements that take
# long are words of check-release and bench, in tools/testing/part.

RELEASE := $(shell uname -r)
KDIR ?= /lib/modules/$(RELEASE)/build
INSTALL_MOD_PATH ?= $(DESTDIR)

SOURCES := $(CURDIR)/net/netfilter/ipvs
MACHINE := tools/testing/machine
UNIT := tools/testing/unit
FUZZ := tools/testing/fuzz
PART := tools/testing/part
SELFTESTS := tools/testing/selftests/net/ipvs_mhs
# a test says what it weighs, files that tests source do not
tests-in = $(shell grep -slE '^\# weight: [0-9]' tools/testing/selftests/net/$(1)/*)
# A test names the lists that it is in by a line at its head: "# tags: core races"
#	core	kernels differ in this: hooks, transmitters, entries, statistics,
#		sysctls; or User-Mode Linux has not what the test needs
#	few	those of core that make check runs on other stock kernels than the default:
#		their subjects differ most
#	races	packets, changes and works run side by side (check-release ONLY=races)
tagged = $(shell grep -slE '^\# tags:(.*) $(1)( |$$)' $(SELFTESTS)/*)
# all but those that need tracing or BTF, which User-Mode Linux has not
for-kernel = $(if $(filter uml%,$(KERNEL)),$(filter-out %/stateless.sh %/lane_xdp.sh,$(1)),$(1))
all-tests = $(call for-kernel,$(call tests-in,ipvs_mhs) $(call tests-in,qdisc_tool))
tests = $(if $(TESTS),$(foreach t,$(TESTS),$(if $(filter core few,$(t)),$(call \
	tagged,$(t)),$(t))),$(all-tests))

# Without KERNEL= the module is for KDIR; machines run the default kernel then.
kernels = $(shell $(MACHINE)/setup --list)
default = $(firstword $(kernels))
middle = $(word 2,$(kernels))
oldest = $(lastword $(kernels))
machine-kernel = $(or $(KERNEL),$(default))
# what uname -r says in that kernel; kernel.release is without Debian's suffix
kdir-release = $(shell sed -n 's/^\#define UTS_RELEASE "\(.*\)"/\1/p' \
	$(KDIR)/include/generated/utsrelease.h 2>/dev/null)
modules := ip_vs_mhs.ko ip_vs_mhs_lane.ko
mod-dir = $(INSTALL_MOD_PATH)/lib/modules/$(kdir-release)

.PHONY: all
all: module

##@ The module, for the running kernel (KDIR=DIR: for the headers in DIR)

.PHONY: module
ifdef KERNEL
module: setup	## build ip_vs_mhs.ko, ip_vs_mhs_lane.ko (KERNEL=NAME: for a machine's kernel)
	$(MACHINE)/build-module $(KERNEL)
else
module: check-kdir
	+@scripts/build_module $(KDIR) $(kdir-release) W=1
endif

.PHONY: check-kdir
check-kdir:
	@[ -e $(KDIR)/Makefile ] || { echo "No kernel headers in $(KDIR): \
	install the package linux-headers-$(RELEASE) (EL, Fedora: \
	kernel-devel-$(RELEASE)), or name their directory with KDIR=." >&2; \
	exit 1; }
	@grep -qsE '^CONFIG_IP_VS=[ym]' $(KDIR)/include/config/auto.conf \
	$(KDIR)/.config || { echo "The kernel of $(KDIR) is built without \
	CONFIG_IP_VS, which ip_vs_mhs needs: use another kernel." >&2; exit 1; }

.PHONY: install
install: module	## install it where `ipvsadm -s mhs` loads it (DESTDIR=)
	install -D -m 644 -t $(mod-dir)/updates $(modules:%=$(SOURCES)/%)
	@$(run-depmod)

.PHONY: uninstall
uninstall: check-kdir	## remove it again
	rm -f $(modules:%=$(mod-dir)/updates/%)
	@$(run-depmod)

.PHONY: tools lane chance
tools lane chance:	## build mhs_table; lane.bpf.o; chance.bpf.o (clang, libbpf-dev), in build/tools
	@$(MAKE) -s -C tools/net/ipvs_mhs $(@:tools=)

##@ The module for every kernel to come, the tools

# the version is the packages'
VERSION := $(shell sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)
DKMS ?= dkms
dkms-id = -m ipvs-mhs -v $(VERSION)
dkms-src = $(DESTDIR)/usr/src/ipvs-mhs-$(VERSION)
dkms-log = $(DESTDIR)/var/lib/dkms/ipvs-mhs/$(VERSION)/build/make.log

# A try that fails leaves nothing registered: DKMS would repeat it with each
# kernel that is installed.
.PHONY: dkms
dkms: check-dkms check-kdir	## have DKMS build it for this kernel and for later ones
	@$(MAKE) -s undkms install-dkms-source
	@$(DKMS) install $(dkms-id) -k $(RELEASE) || { \
		mkdir -p build; \
		cp $(dkms-log) build/dkms.log 2>/dev/null && \
			tail -n 20 build/dkms.log >&2; \
		$(MAKE) -s undkms; \
		echo "dkms: ip_vs_mhs could not be built for $(RELEASE); nothing is" \
			"registered; the compiler's log is build/dkms.log" >&2; \
		exit 1; }
	@echo "ip_vs_mhs $(VERSION) is there for $(RELEASE) and for kernels to \
	come; next: make install-tools, then ipvsadm -A -t ADDRESS:PORT -s mhs"

.PHONY: check-dkms
check-dkms:
	@command -v $(firstword $(DKMS)) >/dev/null || { echo "No DKMS: install \
	the package dkms." >&2; exit 1; }

.PHONY: undkms
undkms:	## take it away from all of them
	@[ -z "$$($(DKMS) status $(dkms-id))" ] || \
		$(DKMS) remove $(dkms-id) --all
	rm -rf $(dkms-src)

.PHONY: install-dkms-source
install-dkms-source:
	install -d $(dkms-src)/net/netfilter/ipvs $(dkms-src)/include \
		$(dkms-src)/scripts
	install -m 644 $(SOURCES)/Kbuild $(filter-out %.mod.c,$(wildcard \
		$(SOURCES)/*.[ch])) $(dkms-src)/net/netfilter/ipvs
	install -m 644 include/*.h $(dkms-src)/include
	install scripts/add_btf scripts/build_module scripts/secure_boot_note \
		$(dkms-src)/scripts
	sed 's/#MODULE_VERSION#/$(VERSION)/' dkms.conf >$(dkms-src)/dkms.conf

# rpmbuild wants the sources in an archive, with their version in its name
RPMBUILD ?= rpmbuild
rpm-dir = $(CURDIR)/build/rpm
rpm-sources = $(rpm-dir)/SOURCES/ipvs-mhs-$(VERSION).tar.gz

.PHONY: rpm
rpm:	## build packages for EL and Fedora in build/rpm: for DKMS, for akmods, the tools
	@command -v $(firstword $(RPMBUILD)) >/dev/null || { echo "No rpmbuild: \
	install the package rpm-build." >&2; exit 1; }
	rm -rf $(rpm-dir)
	mkdir -p $(dir $(rpm-sources)) $(rpm-dir)/SPECS
	tar --exclude=./build --exclude=./.git --exclude='*.ko' --exclude='*.o' \
		--exclude=__pycache__ --transform='s,^\.,ipvs-mhs-$(VERSION),S' \
		-czf $(rpm-sources) .
	for spec in packaging/rpm/*.spec; do \
		sed 's/#VERSION#/$(VERSION)/' $$spec \
			>$(rpm-dir)/SPECS/$${spec##*/} && \
		$(RPMBUILD) -ba --define '_topdir $(rpm-dir)' \
			$(rpm-dir)/SPECS/$${spec##*/} || exit; \
	done

PREFIX ?= /usr/local
UNITDIR ?= $(PREFIX)/lib/systemd/system
tool-names := mhsstat real_server qdisc_tool
# qdisc_tool is a package of its own: it needs no IPVS
package-of = $(if $(filter qdisc_tool,$(1)),qdisc-tool,ipvs-mhs-tools)
sbin-dir = $(DESTDIR)$(PREFIX)/sbin
man-dir = $(DESTDIR)$(PREFIX)/share/man
complete-dir = $(DESTDIR)$(PREFIX)/share/bash-completion/completions
lib-dir = $(DESTDIR)$(PREFIX)/lib/$(call package-of,$(1))
example-dir = $(DESTDIR)$(PREFIX)/share/doc/$(call package-of,$(1))/examples
units = $(wildcard examples/*/*.service examples/*/*.timer)
# units and drop-ins call the tools where they are installed
set-prefix = sed -E 's,/usr/sbin/($(subst $(space),|,$(tool-names))),$(PREFIX)/sbin/\1,g; \
	s,/usr/lib/ipvs-mhs-tools/,$(PREFIX)/lib/ipvs-mhs-tools/,g'
space := $(subst ,, )

define install-tool
install -D -t $(call lib-dir,$(1)) scripts/$(1)
install -D -m 644 -t $(call lib-dir,$(1))/$(1)_lib scripts/$(1)_lib/*.py
sed 's/#VERSION#/$(VERSION)/' scripts/ipvs_mhs_version.py \
	>$(call lib-dir,$(1))/ipvs_mhs_version.py
chmod 644 $(call lib-dir,$(1))/ipvs_mhs_version.py
install -d $(sbin-dir)
ln -sf ../lib/$(call package-of,$(1))/$(1) $(sbin-dir)/$(1)
install -D -m 644 -t $(man-dir)/man8 Documentation/man/$(1).8
install -D -m 644 scripts/$(1).bash-completion $(complete-dir)/$(1)

endef

# a folder of examples, for the tool of the second name
define install-examples
install -d $(DESTDIR)$(UNITDIR)
for file in $$(find examples/$(1) -type f); do \
	case $$file in \
	examples/$(1)/*.service | examples/$(1)/*.timer) \
		to=$(DESTDIR)$(UNITDIR)/$${file##*/} ;; \
	*) to=$(call example-dir,$(2))/$${file#*/} ;; \
	esac; \
	install -D -m 644 /dev/null $$to && \
		$(set-prefix) $$file >$$to || exit; \
done

endef

.PHONY: install-tools
install-tools: install-mhs-tools install-qdisc-tool	## mhsstat, real_server, qdisc_tool, man pages, examples (PREFIX=/usr/local, DESTDIR=)
	@[ -n "$(DESTDIR)" ] || scripts/shadow_note $(PREFIX)/sbin $(tool-names)

# A BPF program, which few need: without clang the rest is installed
install-program = @if command -v $(firstword $(or $(CLANG),clang)) >/dev/null; \
	then $(MAKE) -s $(1) && install -m 644 build/tools/$(1).bpf.o \
		$(call lib-dir,$(2)); \
	else echo "no clang: $(1).bpf.o, which only $(3) needs, is not installed"; fi

.PHONY: install-mhs-tools
install-mhs-tools: tools
	$(foreach tool,mhsstat real_server,$(call install-tool,$(tool)))
	install -m 644 scripts/ipvs_mhs_tool.py $(call lib-dir,mhsstat)
	install build/tools/mhs_table $(call lib-dir,mhsstat)/mhsstat_lib
	$(call install-program,lane,mhsstat,the XDP lane)
	$(call install-program,chance,real_server,'real_server setup --director')
	install -D -m 644 -t $(man-dir)/man7 Documentation/man/*.7
	$(foreach dir,$(filter-out qdisc_tool,$(notdir $(wildcard examples/*))), \
		$(call install-examples,$(dir),mhsstat))

.PHONY: install-qdisc-tool
install-qdisc-tool:	## qdisc_tool alone, which needs no IPVS
	$(call install-tool,qdisc_tool)
	$(call install-examples,qdisc_tool,qdisc_tool)

# Of packages: in the folders of the source tree, or links would lead nowhere
.PHONY: install-docs
install-docs:
	for file in README.md Documentation/networking/*.rst \
		$$(grep -oE '(\]\(|src="|href=")[^)"# ]+' README.md | \
			sed -E 's/^(\]\(|src="|href=")//' | grep -v : | sort -u); do \
		[ -e $(DOCDIR)/$$file ] || install -D -m 644 -t \
			$(DOCDIR)/$$(dirname $$file) $$file || exit; \
	done

.PHONY: uninstall-tools
uninstall-tools:	## remove them again
	for package in $(sort $(foreach tool,$(tool-names),$(call package-of,$(tool)))); do \
		rm -rf $(DESTDIR)$(PREFIX)/lib/$$package \
			$(DESTDIR)$(PREFIX)/share/doc/$$package/examples; \
		rmdir --ignore-fail-on-non-empty \
			$(DESTDIR)$(PREFIX)/share/doc/$$package 2>/dev/null || :; \
	done
	rm -f $(tool-names:%=$(sbin-dir)/%) $(tool-names:%=$(complete-dir)/%) \
		$(patsubst Documentation/man/%,$(man-dir)/man7/%,$(wildcard Documentation/man/*.7)) \
		$(patsubst Documentation/man/%,$(man-dir)/man8/%,$(wildcard Documentation/man/*.8)) \
		$(addprefix $(DESTDIR)$(UNITDIR)/,$(notdir $(units)))

# A staging directory without modules has no use for depmod.
run-depmod = [ ! -e $(mod-dir)/modules.order ] || \
	depmod $(if $(INSTALL_MOD_PATH),-b $(INSTALL_MOD_PATH)) $(kdir-release)

##@ To try it

.PHONY: demo
demo: setup	## mh and mhs side by side under load
	@$(MACHINE)/build-module $(machine-kernel)
	@tools/testing/bench/demo/run $(machine-kernel)

.PHONY: clean
clean:	## remove what was built, keep what was fetched (that: rm -rf build)
	find net include -name '*.o' -o -name '*.ko' -o -name '*.mod' \
		-o -name '*.mod.c' -o -name '.*.cmd' -o -name '.*.d' \
		-o -name Module.symvers -o -name modules.order | xargs -r rm -f
	rm -rf build/run build/check build/series build/kernel/*/module*
	$(MAKE) -s -C $(UNIT) clean
	$(MAKE) -s -C $(FUZZ) clean
	$(MAKE) -s -C tools/net/ipvs_mhs clean

.PHONY: help
help:	## this list
	@awk -F ':.*\#\# ' '/^\#\#@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z -]+:.*\#\# / { split($$1, name, ":"); \
			printf "  %-19s %s\n", name[1], $$2 }' Makefile

##@ For developers: tests in virtual machines (KERNEL=NAME: of tools/testing/machine/kernels, or uml)

.PHONY: setup
setup:	## install what is needed, unpack the kernel; quick when done before
	@$(MACHINE)/setup $(filter-out uml% qemu% kcsan,$(machine-kernel))

# All tests in the kernel that runs them fastest; on the stock ones what kernels
# differ in, what needs one, and the demo.  ONLY=all has all of it on each.
.PHONY: check
check: setup	## all tests in User-Mode Linux, those where kernels differ on 6.1, a few on 6.12 and 5.10
	@+$(MACHINE)/steps check-harness "check-release ONLY=fuzz-short" \
		"check-release ONLY=series" style \
		$(foreach k,$(default) $(middle) $(oldest),"check-module KERNEL=$(k)") \
		check-unit -- "test KERNEL=uml" "check-release ONLY=lane KERNEL=uml" \
		"test KERNEL=$(default) TESTS=core" \
		"test KERNEL=$(middle) TESTS=few MORE=$(SELFTESTS)/lane_xdp.sh" \
		"test KERNEL=$(oldest) TESTS=few" "demo KERNEL=$(default)"

.PHONY: test
test: setup	## kselftests in the machine (TESTS="FILE...", TESTS=core, TESTS=few)
	@case $(machine-kernel) in \
		uml* | qemu* | kcsan) $(MACHINE)/build-kernel $(machine-kernel) ;; \
	esac
	@$(MACHINE)/build-module $(machine-kernel)
	@$(MACHINE)/run --kernel $(machine-kernel) $(tests) $(MORE)

.PHONY: check-module
check-module: setup	## build with every warning an error, with sparse, with clang
	@$(MACHINE)/build-module --check $(machine-kernel)
	@$(MACHINE)/build-module --clang $(machine-kernel)

.PHONY: check-unit
check-unit: setup	## unit tests of the tables in user space
	@$(MACHINE)/tally $(MAKE) -s --no-print-directory -C $(UNIT) check

.PHONY: check-harness
check-harness: setup	## tests that need no machine: of the tools, the pages, the runner itself (ONLY=NAME)
	@$(MACHINE)/tally $(MACHINE)/selftest/run $(addprefix -k ,$(ONLY))

.PHONY: style
style: setup	## static checks of all sources; no output is good
	@tools/testing/static/style

.PHONY: shell
shell: setup tools	## a shell in the machine: module, tools, man pages
	@$(MACHINE)/build-module $(machine-kernel)
	@$(MACHINE)/run --kernel $(machine-kernel) --shell

.PHONY: matrix
matrix:	## what becomes of a packet when a server is drained, deleted or dead, and of a stranger's
	@cat $(SELFTESTS)/matrix.txt

# hours, and none stops for the failure of another
.PHONY: check-release
check-release:	## all that make check has no time for, a night; ONLY=packages: that alone (words: make check-release ONLY=--help)
	@+$(PART) $(ONLY)

.PHONY: check-newest
check-newest: setup	## what Debian's newest kernel changes: module, tests, patches there; may fail
	@+$(MACHINE)/newest

.PHONY: bench
bench:	## what mhs saves, with pictures, 25 minutes (BENCH="SECTION...", BENCH=nic: your cards, more: ONLY=--help)
	@+$(PART) bench $(BENCH) $(PORTS)
