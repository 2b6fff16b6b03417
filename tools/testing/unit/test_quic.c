// SPDX-License-Identifier: GPL-2.0-only
/* The connection ID in a QUIC header: where it is, in every packet and every length of
 * it, read from memory that ends with the packet.
 */
#include <stdlib.h>

#include "ip_vs_mhs_decide.h"
#include "unit.h"

typedef unsigned int (*id_fn)(const u8 *h, unsigned int bytes, unsigned int need);

#define BYTES	40	/* longer than what a keyed ID needs */

/* The packet of @kind, with an ID of @length octets; the octets of the ID count up */
static void packet(u8 *h, u8 first, u32 version, u8 length)
{
	unsigned int i, at = 1;

	memset(h, 0xee, BYTES);
	h[0] = first;
	if (first & 0x80) {
		for (i = 0; i < 4; i++)
			h[1 + i] = version >> (24 - 8 * i);
		h[5] = length;
		at = 6;
	}
	for (i = 0; i < length && at + i < BYTES; i++)
		h[at + i] = i;
}

/* May a server have issued the ID?  By the numbers of the RFCs */
static bool issued(u8 first, u32 version)
{
	return !(first & 0x80) ||
	       (version == 1 && (first & 0x30) == 0x20) ||
	       (version == 0x6b3343cf && (first & 0x30) == 0x30);
}

static bool one(id_fn id, u8 first, u32 version, u8 length, unsigned int bytes,
		unsigned int need)
{
	unsigned int at, want = first & 0x80 ? 7 : 2;
	u8 h[BYTES], *copy;

	packet(h, first, version, length);
	if (!issued(first, version) || want + need > bytes ||
	    (first & 0x80 && (length < 1 + need || length > 20)))
		want = 0;
	copy = unit_alloc(1, bytes ? bytes : 1);
	memcpy(copy, h, bytes);
	at = id(copy, bytes, need);
	/* it is the octet that follows the first one */
	if (at && length > need)
		at = copy[at] == 1 ? at : BYTES;
	free(copy);
	return at == want ||
	       unit_fail("first %02x, version %08x, length %u of the ID, %u bytes, need %u: %u, not %u",
			 first, version, length, bytes, need, at, want);
}

static bool places(const void *arg)
{
	static const u32 versions[] = { 0, 1, 2, 0x6b3343cf, 0xff00001d };
	const id_fn *id = arg;
	unsigned int first, v, length, bytes, need;

	for (first = 0; first < 256; first += 4)
		for (v = 0; v < ARRAY_SIZE(versions); v++)
			for (length = 0; length <= 21; length++)
				for (bytes = 0; bytes <= BYTES; bytes++)
					for (need = 8; need <= 16; need += 8)
						if (!one(*id, first, versions[v],
							 length, bytes, need))
							return false;
	return true;
}

typedef u32 (*facts_fn)(const struct mhs_quic *h, unsigned int bytes);

/* What begins a flow, and what is no QUIC */
static bool facts(const void *arg)
{
	static const struct {
		u8 first;
		u32 version;
		unsigned int bytes;
		u32 want;
	} cases[] = {
		{ 0xc0, 1, 1200, MHS_PKT_NEW },
		{ 0xd0, 0x6b3343cf, 1200, MHS_PKT_NEW },
		{ 0xe0, 1, 1200, MHS_PKT_ANSWERS },
		{ 0x80, 1, 1200, MHS_PKT_NEW },	/* RFC 9287 */
		{ 0xc0, 0xff00001d, 1200, MHS_PKT_NEW },
		{ 0x80, 0x00010203, 172, MHS_PKT_CONNLESS },	/* RTP */
		{ 0x40, 0x01020304, 21, 0 },
		{ 0x40, 0x01020304, 20, MHS_PKT_CONNLESS },
		{ 0x01, 0x01020304, 40, MHS_PKT_ODD },
		{ 0x16, 0xfefd0000, 130, MHS_PKT_CONNLESS },	/* DTLS */
		{ 0x16, 0x01020304, 130, MHS_PKT_ODD },
		{ 0x04, 0x00000012, 32, MHS_PKT_CONNLESS },	/* WireGuard */
		{ 0x04, 0x00010012, 32, MHS_PKT_ODD },
		{ 0x38, 0x01020304, 14, MHS_PKT_CONNLESS },	/* OpenVPN */
	};
	const facts_fn *fn = arg;
	unsigned int i;
	u32 got;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		struct mhs_quic h = { cases[i].first, htonl(cases[i].version) };

		got = (*fn)(&h, cases[i].bytes);
		if (got != cases[i].want)
			return unit_fail("first %02x, version %08x: %x, not %x",
					 cases[i].first, cases[i].version, got,
					 cases[i].want);
	}
	return true;
}

static u32 any_length(const struct mhs_quic *h, unsigned int bytes)
{
	return mhs_quic_facts(h, bytes + MHS_QUIC_MIN);
}

static unsigned int any_type(const u8 *h, unsigned int bytes, unsigned int need)
{
	u8 copy[BYTES];

	memcpy(copy, h, bytes);
	if (bytes && *h & 0x80)
		copy[0] |= 0x30;
	return mhs_quic_id(copy, bytes, need);
}

static unsigned int too_long(const u8 *h, unsigned int bytes, unsigned int need)
{
	return mhs_quic_id(h, bytes, need - 1);
}

static unsigned int first_octet(const u8 *h, unsigned int bytes, unsigned int need)
{
	unsigned int at = mhs_quic_id(h, bytes, need);

	return at ? at - 1 : 0;
}

static const facts_fn real_facts = mhs_quic_facts, lengths_facts = any_length;
static const id_fn real = mhs_quic_id, types = any_type, lengths = too_long,
		   octets = first_octet;

static const struct unit_test tests[] = {
	{ "places", places, &real, NULL },
	{ "catches_any_type", places, &types, "version" },
	{ "catches_too_long", places, &lengths, "bytes" },
	{ "facts", facts, &real_facts, NULL },
	{ "catches_any_length", facts, &lengths_facts, "not" },
	{ "catches_first_octet", places, &octets, "not 2" },
};

int main(int argc, char **argv)
{
	return unit_main(tests, ARRAY_SIZE(tests), argc, argv);
}
