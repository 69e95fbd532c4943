"""Kinds of machine text: what tools, logs, files and formats bring into a conversation.

`KINDS` has one function per kind. Each takes a seeded generator and a size, and returns a text of
exactly that many characters. The same seed gives the same text.

Nobody who tunes the estimate of tokens may look here for samples: these are held out.
"""

# ruff: noqa: RUF001, S608, SIM905 - odd letters, SQL and lists of words are the subject

import base64
import json
import unicodedata
from collections.abc import Callable
from random import Random
from uuid import UUID

Kind = Callable[[Random, int], str]
Row = Callable[[Random, int], str]

KINDS: dict[str, Kind] = {}

LOWER = "abcdefghijklmnopqrstuvwxyz"
UPPER = LOWER.upper()
DIGITS = "0123456789"
HEX = "0123456789abcdef"
WORDS = (
    "order invoice parser queue worker socket buffer index cache token shard replica cluster node "
    "volume ledger customer payment refund basket window canvas widget layout border handler "
    "request session cookie header payload schema migration column vector matrix kernel driver "
    "thread mutex signal stream packet router gateway balance account region zone bucket object "
    "policy secret volume sensor reading battery firmware update archive backup restore monitor"
).split()
NAMES = (
    "Amara Bjorn Chidi Dilnoza Esperanza Faisal Gudrun Hiroshi Ines Jarek Katalin Leilani Marek "
    "Nkechi Oyelaran Priyanka Quentin Rosalind Siobhan Tarek Ulrike Vusi Wanjiru Ximena Zeb"
).split()
TOPS = "com org net io dev example.co.uk test local internal".split()
METHODS = "GET GET GET POST PUT DELETE HEAD PATCH".split()
LEVELS = "DEBUG INFO INFO INFO WARN WARNING ERROR TRACE FATAL".split()
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
DAYS = "Mon Tue Wed Thu Fri Sat Sun".split()


def of_rows(row: Row, *, between: str = "\n") -> Kind:
    """Make a kind of text from the function that writes one row of it."""

    def write(random: Random, size: int) -> str:
        rows, length, number = list[str](), 0, 0
        while length < size:
            rows.append(row(random, number))
            length += len(rows[-1]) + len(between)
            number += 1
        return between.join(rows)[:size].ljust(size)

    return write


def in_rows(row: Row) -> Row:
    """Register a kind: its rows stand on lines of their own."""
    KINDS[row.__name__.removeprefix("write_").replace("_", " ")] = of_rows(row)
    return row


def in_one_line(row: Row) -> Row:
    """Register a kind: nothing stands between its pieces."""
    KINDS[row.__name__.removeprefix("write_").replace("_", " ")] = of_rows(row, between="")
    return row


def pick(random: Random) -> str:
    """Pick a word."""
    return random.choice(WORDS)


def pick_name(random: Random) -> str:
    """Pick a name."""
    return random.choice(NAMES)


def draw(random: Random, letters: str, length: int) -> str:
    """Draw that many letters."""
    return "".join(random.choices(letters, k=length))


def draw_hex(random: Random, length: int) -> str:
    """Draw that many hexadecimal digits."""
    return f"{random.getrandbits(4 * length):0{length}x}"


def draw_ip(random: Random) -> str:
    """Draw an IPv4 address."""
    return ".".join(str(random.randrange(256)) for _ in range(4))


def draw_clock(random: Random) -> str:
    """Draw a time of day."""
    return f"{random.randrange(24):02}:{random.randrange(60):02}:{random.randrange(60):02}"


def draw_date(random: Random) -> str:
    """Draw a date as ISO 8601 writes it."""
    return (
        f"{random.randrange(1990, 2040)}-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"
    )


def draw_path(random: Random) -> str:
    """Draw a path of a file."""
    folders = "/".join(random.choices(WORDS, k=random.randint(1, 4)))
    return f"/{folders}/{pick(random)}.{random.choice('py js rs go c h txt log'.split())}"


def show_bytes(data: bytes) -> str:
    """Show bytes as dumps do: a dot for what cannot be printed."""
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


# Dumps of memory and of programs


@in_rows
def write_hexdump_canonical(random: Random, row: int) -> str:
    """`hexdump -C`."""
    data = random.randbytes(16)
    return f"{row * 16:08x}  {data[:8].hex(' ')}  {data[8:].hex(' ')}  |{show_bytes(data)}|"


@in_rows
def write_hexdump_of_words(random: Random, row: int) -> str:
    """`xxd`: groups of two bytes."""
    data = random.randbytes(16)
    return f"{row * 16:08x}: {data.hex(' ', 2)}  {show_bytes(data)}"


@in_rows
def write_hexdump_uppercase(random: Random, row: int) -> str:
    """A debugger's dump in capitals."""
    return f"0x{row * 16:04X}   " + " ".join(f"{byte:02X}" for byte in random.randbytes(16))


@in_rows
def write_octal_dump(random: Random, row: int) -> str:
    """`od`: groups of two bytes in octal."""
    words = " ".join(f"{random.randrange(65536):06o}" for _ in range(8))
    return f"{row * 16:07o} {words}"


@in_rows
def write_c_byte_array(random: Random, row: int) -> str:
    """`xxd -i`: bytes as a C array."""
    head = f"unsigned char blob_{row}[] = {{\n" if row % 12 == 0 else ""
    return head + "  " + ", ".join(f"0x{byte:02x}" for byte in random.randbytes(12)) + ","


@in_one_line
def write_escaped_bytes(random: Random, _row: int) -> str:
    r"""Bytes as Python shows them: \x and letters."""
    return repr(random.randbytes(40))[2:-1]


@in_one_line
def write_unicode_escapes(random: Random, _row: int) -> str:
    r"""Text as ASCII-only JSON has it: \u and four digits."""
    return "".join(f"\\u{random.randrange(0x400, 0xD000):04x}" for _ in range(8)) + " "


@in_one_line
def write_percent_escapes(random: Random, _row: int) -> str:
    """Text as a query string has it."""
    value = "".join(f"%{byte:02X}" for byte in random.randbytes(random.randint(2, 9)))
    return f"{pick(random)}={value}&"


@in_rows
def write_assembler_listing(random: Random, row: int) -> str:
    """`objdump -d`."""
    data = random.randbytes(random.randint(1, 7)).hex(" ")
    register = random.choice("rax rbx rcx rdx rsi rdi r8d r12 r15d eax xmm0".split())
    verb = random.choice("mov lea add sub xor cmp test jne callq movabs pxor shl imul".split())
    offset = random.choice((f"0x{random.randrange(4096):x}(%rip)", f"$0x{random.randrange(256):x}"))
    return f"  {0x401000 + row * 5:6x}:\t{data:<21}\t{verb:<7} {offset},%{register}"


@in_rows
def write_arm_listing(random: Random, row: int) -> str:
    """A listing for ARM."""
    verb = random.choice("ldr str add sub mov movk stp ldp cbz b.ne".split())
    a, b, c = (random.randrange(31) for _ in range(3))
    return f"ffff8000{row * 4:08x}:\t{draw_hex(random, 8)} \t{verb}\tx{a}, [x{b}, #{c * 8}]"


@in_rows
def write_bytecode(random: Random, row: int) -> str:
    """`python -m dis`."""
    verb = random.choice(
        "LOAD_FAST STORE_NAME CALL RETURN_VALUE POP_JUMP_IF_FALSE BINARY_OP".split()
    )
    return f"{row // 4:>5}  {row * 2:>12} {verb:<28}{random.randrange(40):>3} ({pick(random)})"


@in_rows
def write_web_assembly(random: Random, row: int) -> str:
    """WebAssembly as text."""
    verb = random.choice(
        ("i32.const", "local.get", "i32.add", "f64.mul", "br_if", "call", "i64.load offset=8")
    )
    return f"{'  ' * (2 + row % 5)}({verb} {random.choice(('$', ''))}{random.randrange(9999)})"


@in_rows
def write_intel_hex(random: Random, row: int) -> str:
    """Firmware in Intel's format."""
    data = random.randbytes(17).hex().upper()
    return f":10{row * 16 & 0xFFFF:04X}00{data}"


@in_rows
def write_motorola_records(random: Random, row: int) -> str:
    """Firmware in Motorola's format."""
    return f"S315{row * 16:08X}{random.randbytes(16).hex().upper()}{random.randrange(256):02X}"


@in_rows
def write_bits(random: Random, _row: int) -> str:
    """Binary digits in groups of eight."""
    return " ".join(f"{byte:08b}" for byte in random.randbytes(8))


@in_one_line
def write_bits_unbroken(random: Random, _row: int) -> str:
    """Binary digits without a break."""
    return f"{random.getrandbits(256):0256b}"


# Logs


@in_rows
def write_access_log(random: Random, row: int) -> str:
    """A web server's log."""
    when = f"{random.randrange(1, 29):02}/{random.choice(MONTHS)}/2031:{draw_clock(random)} +0000"
    path = f"/{pick(random)}/{random.randrange(99999)}?v={draw_hex(random, 6)}"
    status = random.choice((200, 200, 301, 304, 404, 500))
    return (
        f'{draw_ip(random)} - - [{when}] "{random.choice(METHODS)} {path} HTTP/1.1" {status} '
        f'{random.randrange(90000)} "-" "Mozilla/5.0 (X11; Linux x86_64) rv:{100 + row % 40}.0"'
    )


@in_rows
def write_system_log(random: Random, row: int) -> str:
    """What syslog writes."""
    head = f"{random.choice(MONTHS)} {random.randrange(1, 29):>2} {draw_clock(random)}"
    return (
        f"{head} host-{draw_hex(random, 4)} {pick(random)}d[{random.randrange(32768)}]: "
        f"{pick(random)} {pick(random)} failed rc={row % 9} fd={random.randrange(99)}"
    )


@in_rows
def write_kernel_log(random: Random, row: int) -> str:
    """What dmesg prints."""
    return (
        f"[{row * 0.713 + random.random():12.6f}] pci 0000:{random.randrange(256):02x}:"
        f"{random.randrange(32):02x}.0: BAR {row % 6}: assigned [mem 0x{draw_hex(random, 8)}-"
        f"0x{draw_hex(random, 8)} 64bit pref]"
    )


@in_rows
def write_key_value_log(random: Random, row: int) -> str:
    """A log of keys and values."""
    return (
        f"ts={draw_date(random)}T{draw_clock(random)}.{row % 1000:03}Z lvl={random.choice(LEVELS)} "
        f"caller={pick(random)}.go:{random.randrange(900)} trace={draw_hex(random, 32)} "
        f'dur={random.random() * 90:.3f}ms msg="{pick(random)} {pick(random)}"'
    )


@in_rows
def write_json_log(random: Random, row: int) -> str:
    """NDJSON: one object per line."""
    return json.dumps(
        {
            "time": 1_700_000_000_000 + row * 977 + random.randrange(900),
            "level": random.choice((10, 20, 30, 40, 50)),
            "pid": random.randrange(65536),
            "reqId": str(UUID(int=random.getrandbits(128))),
            pick(random): random.random(),
            "ok": random.random() < 0.5,
        },
        separators=(",", ":"),
    )


@in_rows
def write_container_log(random: Random, row: int) -> str:
    """Pods and their states."""
    pod = f"{pick(random)}-{draw(random, LOWER + DIGITS, 10)}-{draw(random, LOWER, 5)}"
    state = random.choice("Running Pending CrashLoopBackOff Completed Evicted".split())
    restarts, age = random.randrange(99), random.randrange(400)
    return f"{pod:<34} {row % 3}/3     {state:<18} {restarts:>3}   {age}d"


@in_rows
def write_test_run(random: Random, row: int) -> str:
    """What a test runner prints."""
    name = f"tests/{pick(random)}/test_{pick(random)}.py::test_{pick(random)}"
    verdict = random.choice(("PASSED", "PASSED", "FAILED", "SKIPPED", "XFAIL"))
    return f"{name}[{random.randrange(99)}-{draw_hex(random, 4)}] {verdict} [{row % 101:3d}%]"


@in_rows
def write_dots_of_tests(random: Random, row: int) -> str:
    """A test runner's dots."""
    return draw(random, "." * 30 + "FsxE", 72) + f" [{row % 101:3d}%]"


@in_rows
def write_build_log(random: Random, row: int) -> str:
    """What a compiler warns of."""
    return (
        f"[{row}/{row + 977}] {draw_path(random)}:{random.randrange(2000)}:{random.randrange(90)}: "
        f"warning: unused variable '{pick(random)}_{row % 31}' [-Wunused-variable]"
    )


@in_rows
def write_progress_bars(random: Random, row: int) -> str:
    """Progress bars with ANSI colours."""
    done = random.randrange(41)
    return (
        f"\x1b[2K\r\x1b[1;3{row % 8}m{'█' * done}{'▌' * (done < 40)}{'░' * (39 - done)}\x1b[0m "
        f"{done * 100 // 40:3d}% {random.random() * 90:5.1f}MB/s eta {draw_clock(random)}"
    )


@in_rows
def write_ansi_listing(random: Random, _row: int) -> str:
    """`ls -l` in colours."""
    mode = "".join(letter if random.random() < 0.7 else "-" for letter in "rwxrwxrwx")
    colour = random.choice(("01;34", "01;32", "38;5;214", "01;36", "30;42"))
    return (
        f"-{mode} {random.randrange(9)} root wheel {random.randrange(10**7):>9} "
        f"{random.choice(MONTHS)} {random.randrange(1, 29):>2} {draw_clock(random)[:5]} "
        f"\x1b[{colour}m{pick(random)}.{draw(random, LOWER, 3)}\x1b[0m"
    )


@in_rows
def write_process_table(random: Random, row: int) -> str:
    """What top and ps print."""
    return (
        f"{row * 7 % 65536:>7} {pick(random):<9} 20   0 {random.randrange(10**7):>8} "
        f"{random.randrange(10**6):>7} {random.randrange(99999):>6} {random.choice('RSDZ')} "
        f"{random.random() * 100:5.1f} {random.random() * 9:4.1f} {random.randrange(999)}:"
        f"{random.random() * 60:05.2f} {pick(random)}"
    )


@in_rows
def write_system_calls(random: Random, _row: int) -> str:
    """What strace prints."""
    call = random.choice(
        (
            f'openat(AT_FDCWD, "{draw_path(random)}", O_RDONLY|O_CLOEXEC)',
            f"mmap(NULL, {random.randrange(10**6)}, PROT_READ, MAP_PRIVATE, 3, 0)",
            f'read({random.randrange(9)}, "\\177ELF\\2\\1\\1\\0\\{random.randrange(8)}"..., 832)',
            f"futex(0x7f{draw_hex(random, 10)}, FUTEX_WAIT_PRIVATE, 2, NULL)",
        )
    )
    took = draw(random, DIGITS, 6)
    return f"{random.randrange(9999)} {call} = {random.choice((0, -1, 3, 832))} <0.{took}>"


@in_rows
def write_garbage_collector_log(random: Random, row: int) -> str:
    """What a virtual machine says of its heap."""
    before = random.randrange(100, 9999)
    return (
        f"[{row * 1.37:.3f}s][info][gc] GC({row}) Pause Young (Normal) (G1 Evacuation Pause) "
        f"{before}M->{before // 3}M({before * 2}M) {random.random() * 40:.3f}ms"
    )


# Traces


@in_rows
def write_python_traces(random: Random, row: int) -> str:
    """Python's traces."""
    if row % 6 == 5:
        return f"{random.choice(('Key', 'Value', 'Type'))}Error: {pick(random)!r}\n\nTraceback:"
    return (
        f'  File "{draw_path(random)}", line {random.randrange(3000)}, in {pick(random)}\n'
        f"    {pick(random)}.{pick(random)}({pick(random)}=self._x{row})"
    )


@in_rows
def write_java_traces(random: Random, row: int) -> str:
    """Java's traces."""
    name = pick(random).title() + pick(random).title()
    if row % 9 == 8:
        return f"Caused by: org.{pick(random)}.{name}Exception: HTTP {random.randrange(600)}"
    return (
        f"\tat com.{pick(random)}.{pick(random)}.{name}$$Lambda${row}/0x"
        f"{draw_hex(random, 16)}.accept({name}.java:{random.randrange(999)})"
    )


@in_rows
def write_native_traces(random: Random, row: int) -> str:
    """A debugger's backtrace."""
    return (
        f"#{row % 40:<3}0x{draw_hex(random, 16)} in {pick(random)}::{pick(random)}"
        f"<{pick(random)}_t, {row % 7}ul> (this=0x{draw_hex(random, 12)}, "
        f"n={random.randrange(999)}) at ../{pick(random)}.cc:{random.randrange(999)}"
    )


# Keys, ids and codes


@in_rows
def write_uuids(random: Random, _row: int) -> str:
    """UUIDs."""
    return str(UUID(int=random.getrandbits(128)))


@in_rows
def write_sortable_ids(random: Random, _row: int) -> str:
    """ULIDs: 26 letters of Crockford's alphabet."""
    return "01" + draw(random, "0123456789ABCDEFGHJKMNPQRSTVWXYZ", 24)


@in_rows
def write_checksums(random: Random, row: int) -> str:
    """`sha256sum`."""
    return f"{draw_hex(random, 64)}  {pick(random)}-{row}.tar.gz"


@in_rows
def write_web_tokens(random: Random, _row: int) -> str:
    """JSON web tokens."""
    parts = (random.randbytes(size) for size in (24, 90, 32))
    return "eyJ" + ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


@in_rows
def write_api_keys(random: Random, row: int) -> str:
    """Keys of services in an environment file."""
    prefix = random.choice(("live_", "pk-", "AK", "xo-", "g_pat_", ""))
    key = draw(random, LOWER + UPPER + DIGITS, random.choice((20, 32, 48)))
    return f"{pick(random).upper()}_KEY_{row}={prefix}{key}"


@in_rows
def write_pem(random: Random, row: int) -> str:
    """Certificates in PEM."""
    if row % 24 == 0:
        return "-----BEGIN CERTIFICATE-----"
    if row % 24 == 23:
        return "-----END CERTIFICATE-----"
    return base64.b64encode(random.randbytes(48)).decode()


@in_rows
def write_public_keys(random: Random, row: int) -> str:
    """Keys of SSH."""
    body = base64.b64encode(random.randbytes(51)).decode()
    return f"ssh-ed25519 AAAAC3Nza{body} {pick_name(random).lower()}@host{row}"


@in_one_line
def write_base64_unbroken(random: Random, _row: int) -> str:
    """Base64 without a break."""
    return base64.b64encode(random.randbytes(300)).decode()


@in_rows
def write_base32(random: Random, _row: int) -> str:
    """Base32."""
    return base64.b32encode(random.randbytes(40)).decode()


@in_rows
def write_base58(random: Random, row: int) -> str:
    """Addresses of coins."""
    letters = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
    return f"{row % 2 * 2 + 1}{draw(random, letters, 33)} {random.random() * 40:.8f}"


@in_rows
def write_base85(random: Random, _row: int) -> str:
    """Base85, as in binary patches."""
    return "z" + base64.b85encode(random.randbytes(52)).decode()


@in_rows
def write_ascii85(random: Random, _row: int) -> str:
    """Ascii85, as in PostScript."""
    return base64.a85encode(random.randbytes(56)).decode()


@in_rows
def write_uuencoded(random: Random, _row: int) -> str:
    """Uuencode."""
    return "M" + "".join(chr(32 + random.randrange(1, 64)) for _ in range(60))


@in_rows
def write_quoted_printable(random: Random, _row: int) -> str:
    """Mail in quoted-printable."""
    words = (
        pick(random) + "".join(f"={byte:02X}" for byte in random.randbytes(2)) for _ in range(6)
    )
    return " ".join(words) + "="


@in_rows
def write_ip_addresses(random: Random, _row: int) -> str:
    """IPv4 addresses and ports."""
    return (
        f"{draw_ip(random)}:{random.randrange(65536)} -> {draw_ip(random)}/{random.randrange(33)}"
    )


@in_rows
def write_ipv6_addresses(random: Random, _row: int) -> str:
    """IPv6 addresses."""
    groups = ":".join(f"{random.randrange(65536):x}" for _ in range(random.choice((4, 8))))
    return f"inet6 2001:db8::{groups}/64 scope global"


@in_rows
def write_mac_addresses(random: Random, _row: int) -> str:
    """MAC addresses in three notations."""
    sign = random.choice(":-")
    text = random.randbytes(6).hex(sign)
    return random.choice((text, text.upper(), random.randbytes(6).hex(".", 2)))


@in_rows
def write_colour_codes(random: Random, row: int) -> str:
    """Colours of a theme."""
    return (
        f"--{pick(random)}-{row % 10}00: #{draw_hex(random, 6)}; /* rgb("
        f"{random.randrange(256)},{random.randrange(256)},{random.randrange(256)}) "
        f"hsl({random.randrange(360)}deg {random.randrange(101)}% 50%) */"
    )


@in_one_line
def write_colour_row(random: Random, _row: int) -> str:
    """Pixels, one colour after the other."""
    return "#" + draw_hex(random, 6).upper()


@in_rows
def write_card_numbers(random: Random, _row: int) -> str:
    """Account and card numbers in groups."""
    iban = " ".join(draw(random, DIGITS, 4) for _ in range(5))
    return f"{draw(random, UPPER, 2)}{draw(random, DIGITS, 2)} {iban}  {draw(random, DIGITS, 16)}"


@in_rows
def write_phone_numbers(random: Random, _row: int) -> str:
    """Telephone numbers."""
    return (
        f"+{random.randrange(1, 999)} ({random.randrange(100, 999)}) "
        f"{random.randrange(100, 999)}-{draw(random, DIGITS, 4)} x{random.randrange(99)}"
    )


@in_rows
def write_plates_and_parts(random: Random, _row: int) -> str:
    """Part numbers, plates, tickets."""
    return (
        f"{draw(random, UPPER, 3)}-{draw(random, DIGITS, 4)}/{draw(random, UPPER + DIGITS, 5)}"
        f".{draw(random, UPPER, 1)}{random.randrange(99):02} "
        f"{draw(random, UPPER, 2)}#{draw_hex(random, 3)}"
    )


@in_rows
def write_pod_suffixes(random: Random, _row: int) -> str:
    """Random names in lower case."""
    return "-".join(draw(random, "bcdfghjklmnpqrstvwxz2456789", 5) for _ in range(4))


# Numbers


@in_rows
def write_digit_table(random: Random, _row: int) -> str:
    """Single digits with spaces."""
    return " ".join(draw(random, DIGITS, 36))


@in_rows
def write_matrix_of_bits(random: Random, _row: int) -> str:
    """A matrix of 0 and 1."""
    return "[" + ", ".join(draw(random, "01", 28)) + "],"


@in_one_line
def write_digits_unbroken(random: Random, _row: int) -> str:
    """Digits without a break."""
    return draw(random, DIGITS, 200)


@in_rows
def write_floats(random: Random, _row: int) -> str:
    """Numbers in scientific notation."""
    return "  ".join(f"{random.gauss(0, 1) * 10 ** random.randint(-9, 9):+.6e}" for _ in range(6))


@in_one_line
def write_embedding(random: Random, _row: int) -> str:
    """A vector of an embedding."""
    return f"{random.gauss(0, 0.05):.17f}, "


@in_rows
def write_whole_numbers(random: Random, _row: int) -> str:
    """Integers of every length."""
    return " ".join(str(random.randrange(10 ** random.randint(1, 18))) for _ in range(8))


@in_rows
def write_sudoku(random: Random, row: int) -> str:
    """Sudoku with frames."""
    if row % 4 == 3:
        return "+-------+-------+-------+"
    cells = [" ".join(draw(random, ".123456789", 3)) for _ in range(3)]
    return f"| {cells[0]} | {cells[1]} | {cells[2]} |"


@in_rows
def write_roman_numerals(random: Random, _row: int) -> str:
    """Roman numerals."""
    tens = " X XX XXX XL L LX LXX LXXX XC".split(" ")
    ones = " I II III IV V VI VII VIII IX".split(" ")
    numbers = (
        "M" * random.randrange(4)
        + "CD" * random.randrange(2)
        + random.choice(tens)
        + random.choice(ones)
        for _ in range(10)
    )
    return ", ".join(numbers)


@in_rows
def write_timestamps(random: Random, row: int) -> str:
    """Times in several notations."""
    return random.choice(
        (
            f"{draw_date(random)}T{draw_clock(random)}.{row % 10**6:06}+0{row % 10}:30",
            f"{1_600_000_000 + random.randrange(10**8)}.{random.randrange(10**9):09}",
            f"{random.choice(DAYS)}, {row % 28 + 1:02} Feb 2029 {draw_clock(random)}",
            f"{random.randrange(1, 13)}/{random.randrange(1, 29)}/{random.randrange(10, 99)}",
        )
    )


@in_rows
def write_coordinates(random: Random, _row: int) -> str:
    """A track of a receiver."""
    return (
        f'<trkpt lat="{random.uniform(-90, 90):.7f}" lon="{random.uniform(-180, 180):.7f}">'
        f"<ele>{random.uniform(0, 3000):.2f}</ele></trkpt>"
    )


@in_rows
def write_receiver_sentences(random: Random, _row: int) -> str:
    """NMEA 0183."""
    return (
        f"$GPGGA,{draw(random, DIGITS, 6)}.00,{random.uniform(0, 9000):09.4f},N,"
        f"{random.uniform(0, 18000):010.4f},E,1,{random.randrange(13):02},0.9,"
        f"{random.uniform(0, 900):.1f},M,46.9,M,,*{random.randrange(256):02X}"
    )


# Tables


@in_rows
def write_csv(random: Random, row: int) -> str:
    """A table with commas."""
    return (
        f'{row},"{pick_name(random)} {pick_name(random)}",{draw_date(random)},'
        f"{random.random() * 1000:.2f},{pick(random)},,{random.randrange(2)},N/A"
    )


@in_rows
def write_tsv(random: Random, _row: int) -> str:
    """A table with tabs."""
    return "\t".join(f"{random.gauss(0, 30):.4f}" for _ in range(9))


@in_rows
def write_semicolons(random: Random, _row: int) -> str:
    """A table with semicolons and decimal commas."""
    return ";".join(f"{random.random() * 9999:.2f}".replace(".", ",") for _ in range(8)) + ";;"


@in_rows
def write_fixed_columns(random: Random, _row: int) -> str:
    """A table of much white space."""
    cells = (str(random.randrange(10 ** random.randint(1, 6))) for _ in range(5))
    return "".join(cell.rjust(random.choice((9, 14, 23))) for cell in cells)


@in_rows
def write_tabs(random: Random, _row: int) -> str:
    """Tabs of varying number."""
    return "".join("\t" * random.randint(1, 6) + pick(random)[:3] for _ in range(6))


@in_rows
def write_ragged_blanks(random: Random, _row: int) -> str:
    """Blank lines, blanks of every length, little else."""
    return "".join(
        " " * random.randint(1, 40) + draw(random, LOWER + DIGITS, 1) for _ in range(3)
    ) + ("\n" * random.randrange(4))


@in_rows
def write_markdown_table(random: Random, row: int) -> str:
    """A table in Markdown."""
    if row == 1:
        return "|:---|---:|:--:|---|"
    return (
        f"| `{pick(random)}_{row}` | {random.randrange(10**6):,} | "
        f"{random.choice('✅❌⚠')} | **{pick(random)}** {random.random():.1%} |"
    )


@in_rows
def write_database_frame(random: Random, row: int) -> str:
    """A result of a database client."""
    if row % 20 == 0:
        return "+--------+----------------+---------------------+----------+"
    return (
        f"| {row:>6} | {pick(random):<14} | {draw_date(random)} {draw_clock(random)} | "
        f"{random.choice(('NULL', 't', 'f', '0.00')):>8} |"
    )


@in_rows
def write_box_drawings(random: Random, _row: int) -> str:
    """Frames of box-drawing characters."""
    return draw(random, "┌┬┐├┼┤└┴┘─│═║╔╦╗╠╬╣╚╩╝╭╮╰╯   ", 48)


@in_rows
def write_box_table(random: Random, row: int) -> str:
    """A table in a terminal's frames."""
    if row % 5 == 0:
        return "├" + "┼".join("─" * 14 for _ in range(4)) + "┤"
    return "│" + "│".join(f" {pick(random):<13}" for _ in range(4)) + "│"


@in_rows
def write_tree(random: Random, _row: int) -> str:
    """A tree of folders."""
    return "│   " * random.randrange(5) + random.choice(("├── ", "└── ")) + pick(random) + ".rs"


# Documents and data


@in_rows
def write_json_indented(random: Random, row: int) -> str:
    """JSON with four blanks."""
    record = {
        "id": row,
        pick(random): {pick(random): [random.randrange(99) for _ in range(3)]},
        "tags": random.sample(WORDS, 3),
        "score": random.random(),
        "none": None,
    }
    return json.dumps(record, indent=4) + ","


@in_one_line
def write_json_nested(random: Random, row: int) -> str:
    """JSON of little but brackets."""
    depth = random.randint(2, 9)
    return "[{" + f'"{draw(random, LOWER, 1)}":[' * depth + str(row % 10) + "]" * depth + "}],"


@in_rows
def write_json_in_strings(random: Random, row: int) -> str:
    """JSON in a string of JSON in a string of JSON."""
    inner = json.dumps({pick(random): [pick(random), row]})
    return json.dumps({"body": json.dumps({"message": inner})})


@in_rows
def write_yaml(random: Random, row: int) -> str:
    """A manifest in YAML."""
    return (
        f"{'  ' * (row % 6)}- {pick(random)}: &a{row} !!str "
        f"{random.choice(('yes', '~', '0o755', '|-', '{a: 1}', '*a1', '1Gi'))}"
    )


@in_rows
def write_toml(random: Random, row: int) -> str:
    """Settings in TOML."""
    if row % 5 == 0:
        return f"\n[[{pick(random)}.{pick(random)}]]"
    return f'{pick(random)}_{row} = ["{draw_hex(random, 12)}", {random.random():.3f}, true]'


@in_rows
def write_xml(random: Random, row: int) -> str:
    """XML with name spaces."""
    tag = f"{draw(random, LOWER, 2)}:{pick(random).title()}"
    return f'<{tag} xsi:type="xs:int" r:id="rId{row}">{random.randrange(10**6)}</{tag}>'


@in_one_line
def write_html(random: Random, row: int) -> str:
    """HTML with classes of a framework."""
    sizes = " ".join(f"{draw(random, LOWER, 2)}-{random.randrange(12)}" for _ in range(6))
    return f'<div class="{sizes} md:hover:bg-{row % 9}00/50" data-v-{draw_hex(random, 8)}><span>'


@in_rows
def write_sql_dump(random: Random, row: int) -> str:
    """A dump of a database."""
    return (
        f"INSERT INTO `{pick(random)}s` VALUES ({row},'{pick_name(random)}',NULL,"
        f"'{draw_date(random)} {draw_clock(random)}',{random.random() * 100:.2f},_binary '\\0',"
        f"x'{draw_hex(random, 16).upper()}');"
    )


@in_rows
def write_notebook(random: Random, row: int) -> str:
    """A notebook's JSON with a picture in it."""
    picture = base64.b64encode(random.randbytes(120)).decode()
    return (
        f'  {{"cell_type": "code", "execution_count": {row}, "metadata": {{}}, "outputs": [{{'
        f'"data": {{"image/png": "iVBORw0KGgo{picture}\\n"}}}}],\n'
        f'   "source": ["df[\\"{pick(random)}\\"].plot()\\n", "plt.show()"]}},'
    )


@in_rows
def write_ini(random: Random, row: int) -> str:
    """Settings of units."""
    return f"[{pick(random).title()}]\nExecStart={draw_path(random)} --{pick(random)}={row}"


@in_rows
def write_vcards(random: Random, row: int) -> str:
    """Cards of addresses."""
    a, b = pick_name(random), pick_name(random)
    return (
        f"BEGIN:VCARD\r\nVERSION:4.0\r\nN:{b};{a};;;\r\n"
        f"TEL;TYPE=cell:+{draw(random, DIGITS, 11)}\r\n"
        f"EMAIL:{a.lower()}.{b.lower()}@{pick(random)}.{random.choice(TOPS)}\r\n"
        f"REV:2030{draw(random, '01', 4)}T{row % 10**6:06}Z\r\nEND:VCARD"
    )


@in_rows
def write_calendar(random: Random, row: int) -> str:
    """Events of a calendar."""
    return (
        f"BEGIN:VEVENT\r\nUID:{draw_hex(random, 12)}-{row}@cal\r\nDTSTART;TZID=Asia/Tbilisi:2032"
        f"{random.randrange(1, 13):02}{random.randrange(1, 29):02}T{row % 24:02}3000\r\n"
        f"RRULE:FREQ=WEEKLY;BYDAY=MO,TH;COUNT={row % 50}\r\nSUMMARY:{pick(random)}\r\nEND:VEVENT"
    )


@in_rows
def write_crontab(random: Random, _row: int) -> str:
    """A table of cron."""
    fields = (
        random.choice(("*", "*/5", str(random.randrange(60)), "0,30", "9-17", "1-5/2"))
        for _ in range(5)
    )
    return f"{' '.join(fields)} root {draw_path(random)} >/dev/null 2>&1"


@in_rows
def write_mail_headers(random: Random, _row: int) -> str:
    """Headers of a mail."""
    return (
        f"Received: from mx{random.randrange(99)}.{pick(random)}.{random.choice(TOPS)} "
        f"([{draw_ip(random)}]) by {pick(random)} with ESMTPS id {draw(random, UPPER + DIGITS, 14)}"
        f"\n\tfor <{pick_name(random).lower()}@{pick(random)}.{random.choice(TOPS)}>; "
        f"{random.choice(DAYS)}, 3 {random.choice(MONTHS)} 2027 {draw_clock(random)} -0700 (PDT)"
    )


@in_rows
def write_links(random: Random, _row: int) -> str:
    """Long links with parameters."""
    query = "&".join(f"utm_{pick(random)}={draw(random, LOWER + DIGITS, 9)}" for _ in range(3))
    return (
        f"https://{pick(random)}.{pick(random)}.{random.choice(TOPS)}/"
        f"{pick(random)}/{draw(random, LOWER + UPPER + DIGITS + '-_', 22)}?{query}"
        f"#s{draw_hex(random, 4)}"
    )


@in_rows
def write_subtitles(random: Random, row: int) -> str:
    """Subtitles."""
    words = " ".join(random.choices(WORDS, k=5))
    start, end = draw_clock(random)[3:], draw_clock(random)[3:]
    return f"{row}\n00:{start},{row % 1000:03} --> 00:{end},210\n{words}\n"


# Programs


@in_one_line
def write_minified_script(random: Random, _row: int) -> str:
    """Minified JavaScript."""
    a, b, c = (random.choice(LOWER + UPPER + "$_") for _ in range(3))
    return random.choice(
        (
            f"function {a}({b},{c}){{return {b}.{pick(random)}?{c}[{b}]:void 0}}",
            f"!0===({a}=null==({b}={c}.get({random.randrange(999)}))?0:{b}[{c}])&&",
            f"var {a}={c}({random.randrange(9999)}),{b}=new {c}.{a}({{{b}:1e3,{a}:!1}});",
            f"({a}={{}},{b}=>{{for(let {c} of {b}){a}[{c}]??=[];}}),",
        )
    )


@in_one_line
def write_minified_styles(random: Random, row: int) -> str:
    """Minified CSS."""
    return (
        f".{draw(random, LOWER, 2)}_{draw_hex(random, 5)}>a:nth-child({row % 9}n+1){{margin:"
        f"{random.randrange(99)}px -{random.random():.2f}em 0;color:#{draw_hex(random, 3)}}}"
    )


@in_one_line
def write_source_map(random: Random, _row: int) -> str:
    """Mappings of a source map."""
    return draw(random, LOWER + UPPER + DIGITS + "+/", random.choice((4, 4, 5, 8))) + random.choice(
        ",,,;"
    )


@in_rows
def write_diff(random: Random, row: int) -> str:
    """A unified diff."""
    if row % 9 == 0:
        return f"@@ -{random.randrange(999)},7 +{random.randrange(999)},9 @@ def {pick(random)}():"
    sign = random.choice("+- ")
    return f"{sign}{' ' * random.choice((4, 8, 12))}{pick(random)}[{row}] = {pick(random)}()"


@in_rows
def write_makefile(random: Random, row: int) -> str:
    """A Makefile."""
    if row % 3 == 0:
        return f"$(OBJ)/{pick(random)}.o: {pick(random)}.c $(wildcard *.h) | $(OUT)"
    return f"\t@$(CC) $(CFLAGS) -D{pick(random).upper()}={row} -c $< -o $@ || exit $$?"


@in_rows
def write_shell(random: Random, row: int) -> str:
    """Lines of a shell."""
    return (
        f"$ awk -F'|' '{{s[$1]+=${row % 9}}} END{{for(k in s) print k,s[k]}}' {draw_path(random)} "
        f"| sort -k{row % 5}nr | sed -E 's/^({draw(random, LOWER, 3)}+)$/\\1/g' 2>/dev/null"
    )


@in_rows
def write_regexes(random: Random, _row: int) -> str:
    """Regular expressions."""
    pieces = (
        r"(?:\d{1,3}\.){3}",
        r"[^\s\"'<>]+?",
        r"(?P<y>[12]\d{3})",
        r"\b(?!-)",
        r"[\u00C0-\u017F]*",
        r"(?<=\\)$",
        r"^\p{Lu}++",
        r"|(?i:\x1b\[[0-9;]*m)",
        r"[A-Za-z0-9_.~%+-]{2,}@",
    )
    return "/" + "".join(random.choices(pieces, k=6)) + "/" + draw(random, "gimsuy", 2)


@in_rows
def write_camel_case(random: Random, _row: int) -> str:
    """Names in camel case."""
    return " ".join(
        pick(random) + "".join(word.title() for word in random.choices(WORDS, k=3))
        for _ in range(4)
    )


@in_rows
def write_snake_case(random: Random, _row: int) -> str:
    """Names in snake case, some of them in capitals."""
    names = ("_".join(random.choices(WORDS, k=4)) for _ in range(3))
    return " ".join(name.upper() if random.random() < 0.4 else name for name in names)


@in_rows
def write_kebab_case(random: Random, _row: int) -> str:
    """Names in kebab case."""
    return " ".join("-".join(random.choices(WORDS, k=4)) for _ in range(3))


@in_one_line
def write_mangled_names(random: Random, _row: int) -> str:
    """Names as a C++ linker sees them."""
    words = random.choices(WORDS, k=4)
    return "_ZN" + "".join(f"{len(word)}{word}" for word in words) + "IjLm8EEvRKT_PKcz\n"


@in_rows
def write_brackets_of_lisp(random: Random, _row: int) -> str:
    """Lisp."""
    depth = random.randint(2, 8)
    return (
        "(" * depth
        + " ".join(random.choices(("car", "'x", "#t", "cdr", "λ", "1"), k=6))
        + ")" * depth
    )


@in_one_line
def write_signs_of_brainfuck(random: Random, _row: int) -> str:
    """A language of eight signs."""
    return draw(random, "+++---<<>>[].,", 60)


@in_rows
def write_array_language(random: Random, _row: int) -> str:
    """APL."""
    return draw(random, "⍳⍴⌽⍉∘.×÷+⌈⌊∊⍋⍒⊂⊃∩∪⍺⍵←→{}¨⍨ 0123", 40)


# Networks


@in_rows
def write_port_scan(random: Random, row: int) -> str:
    """What nmap prints."""
    if row % 8 == 0:
        return f"\nNmap scan report for {draw_ip(random)}\nPORT      STATE    SERVICE"
    port = f"{random.randrange(65536)}/{random.choice(('tcp', 'udp'))}"
    return f"{port:<10}{random.choice(('open', 'filtered', 'closed')):<9}{pick(random)}"


@in_rows
def write_packets(random: Random, _row: int) -> str:
    """What tcpdump prints."""
    sequence = random.randrange(10**9)
    return (
        f"{draw_clock(random)}.{draw(random, DIGITS, 6)} IP "
        f"{draw_ip(random)}.{random.randrange(65536)}"
        f" > {draw_ip(random)}.443: Flags [{random.choice(('S', 'P.', '.', 'F.', 'R'))}], seq "
        f"{sequence}:{sequence + 1448}, "
        f"ack {random.randrange(10**6)}, win {random.randrange(9999)}, length 1448"
    )


@in_rows
def write_zone_file(random: Random, row: int) -> str:
    """Records of a zone."""
    return (
        f"{pick(random)}-{row}.{random.choice(TOPS)}.\t{random.randrange(86400)}\tIN\tTXT\t"
        f'"v=DKIM1; k=rsa; p={base64.b64encode(random.randbytes(30)).decode()}"'
    )


@in_rows
def write_firewall_rules(random: Random, row: int) -> str:
    """Rules of a firewall."""
    return (
        f"-A INPUT -s {draw_ip(random)}/{random.randrange(33)} -p tcp -m multiport --dports "
        f"{random.randrange(65536)},{row} -m state --state NEW "
        f"-j {random.choice(('DROP', 'ACCEPT'))}"
    )


# Sciences, games, music


@in_rows
def write_gene_bank(random: Random, row: int) -> str:
    """Bases as a gene bank has them."""
    return f"{row * 60 + 1:>9} " + " ".join(draw(random, "acgt", 10) for _ in range(6))


@in_rows
def write_reads(random: Random, row: int) -> str:
    """Reads of a sequencer with their qualities."""
    quality = "".join(chr(33 + random.randrange(41)) for _ in range(75))
    return f"@RUN.{row} {row}/1\n{draw(random, 'ACGTN', 75)}\n+\n{quality}"


@in_rows
def write_proteins(random: Random, row: int) -> str:
    """Proteins."""
    if row % 8 == 0:
        return (
            f">sp|{draw(random, UPPER, 1)}{draw(random, DIGITS, 5)}|{draw(random, UPPER, 4)}_HUMAN"
        )
    return draw(random, "ACDEFGHIKLMNPQRSTVWY", 60)


@in_rows
def write_molecules(random: Random, _row: int) -> str:
    """Molecules in SMILES."""
    pieces = (
        "C(=O)N",
        "c1ccccc1",
        "[C@@H](O)",
        "CC",
        "N1CCN(CC1)",
        "OC",
        "S(=O)(=O)",
        "[nH]",
        "Cl",
        "/C=C/",
        "#N",
    )
    return "".join(random.choices(pieces, k=9))


@in_rows
def write_atoms(random: Random, row: int) -> str:
    """Atoms of a structure, in columns."""
    place = "".join(f"{random.uniform(-99, 99):8.3f}" for _ in range(3))
    residue = random.choice(("GLY", "TRP", "LYS"))
    return f"ATOM  {row % 99999:>5}  CA  {residue} A{row % 999:>4}    {place}  1.00"


@in_rows
def write_formulas(random: Random, row: int) -> str:
    """LaTeX."""
    a, b = random.choice(LOWER), random.choice(("alpha", "varphi", "Omega", "xi", "nabla"))
    return (
        f"\\begin{{align}}\\label{{eq:{row}}} \\int_{{0}}^{{\\infty}} "
        f"\\frac{{\\partial^{row % 5} {a}}}{{\\partial \\{b}^2}}\\,\\mathrm{{d}}{a} &\\le "
        f"\\sum_{{k=1}}^{{n}} \\hat{{{a}}}_k^{{\\dagger}} \\\\"
    )


@in_rows
def write_signs_of_mathematics(random: Random, _row: int) -> str:
    """Signs of mathematics."""
    return draw(random, "∀∃∈∉∅∇∂∫∮∑∏√∞≈≠≤≥⊂⊆∪∩⊕⊗⊢⊨⟨⟩↦⇒⇔ℝℤℕℂ xyz", 40)


@in_one_line
def write_styled_letters(random: Random, _row: int) -> str:
    """Mathematical alphanumerics: letters of other planes."""
    start = random.choice((0x1D400, 0x1D49C + 0x34, 0x1D538 + 0x34, 0x1D5D4, 0x1D670))
    return "".join(chr(start + random.randrange(26)) for _ in range(7)) + " "


@in_rows
def write_chess_games(random: Random, row: int) -> str:
    """Games of chess."""
    moves = (
        f"{n + 1}. {random.choice('NBRQK')}{random.choice('abcdefgh')}{random.randrange(1, 9)} "
        f"{random.choice('abcdefgh')}x{random.choice('abcdefgh')}{random.randrange(1, 9)}+"
        for n in range(6)
    )
    return f'[Round "{row}"]\n' + " ".join(moves) + " 1/2-1/2"


@in_rows
def write_chess_positions(random: Random, row: int) -> str:
    """Positions of chess."""
    ranks = "/".join(draw(random, "pPrRnNbBqQkK12", 6) for _ in range(8))
    return f"{ranks} {random.choice('wb')} KQkq - {row % 50} {row}"


@in_rows
def write_go_games(random: Random, _row: int) -> str:
    """Games of go."""
    return "".join(f";{'BW'[n % 2]}[{draw(random, LOWER[:19], 2)}]" for n in range(12))


@in_rows
def write_poker_hands(random: Random, row: int) -> str:
    """Hands of poker."""
    cards = " ".join(random.choice("23456789TJQKA") + random.choice("♠♥♦♣") for _ in range(7))
    least, most = random.randrange(999), random.randrange(9999)
    return f"Seat {row % 9 + 1}: [{cards}] raises ${least} to ${most}"


@in_rows
def write_playing_cards(random: Random, _row: int) -> str:
    """Cards as single characters."""
    return " ".join(
        chr(random.choice((0x1F0A1, 0x1F0B1, 0x1F0C1)) + random.randrange(14)) for _ in range(13)
    )


@in_rows
def write_music_in_letters(random: Random, _row: int) -> str:
    """ABC notation."""
    notes = "ABCDEFGabcdefgz"
    bars = (
        "".join(
            random.choice(("", "^", "_", "="))
            + random.choice(notes)
            + random.choice(("", "2", "/2", ",", "'"))
            for _ in range(5)
        )
        for _ in range(5)
    )
    return "|: " + " | ".join(bars) + " :|"


@in_rows
def write_guitar_tabs(random: Random, row: int) -> str:
    """Tablature."""
    return "eBGDAE"[row % 6] + "|" + draw(random, "-" * 12 + "0123579hp~", 56) + "|"


@in_rows
def write_chords(random: Random, _row: int) -> str:
    """Chords above a line."""
    return "   ".join(
        random.choice("ABCDEFG") + random.choice(("m7", "maj9", "sus4", "°", "7♭5", "/F♯", ""))
        for _ in range(8)
    )


@in_rows
def write_knitting_rows(random: Random, row: int) -> str:
    """A pattern for knitting."""
    return f"R{row}: " + ", ".join(
        random.choice(("k", "p", "yo", "k2tog", "ssk", "sl1 wyif")) + str(random.randrange(1, 20))
        for _ in range(7)
    )


# Drawings and signs


@in_one_line
def write_paths_of_drawings(random: Random, _row: int) -> str:
    """Paths of an SVG."""
    numbers = ",".join(f"{random.uniform(-99, 99):.2f}".lstrip("0") for _ in range(4))
    return random.choice("mlhvcsqtazMLC") + numbers


@in_rows
def write_ascii_art(random: Random, _row: int) -> str:
    """Pictures of characters."""
    return draw(random, r" .:-=+*#%@/\|_()" + " " * 12, 64)


@in_rows
def write_banner_letters(random: Random, _row: int) -> str:
    """Large letters of small ones."""
    return "  ".join(
        random.choice((" _____ ", "|  ___|", "| |_   ", r"\___  \ ", "/_/   \\", "|_|    "))
        for _ in range(7)
    )


@in_rows
def write_shades(random: Random, _row: int) -> str:
    """Pictures of blocks and shades."""
    return draw(random, "█▓▒░▀▄▌▐▖▗▘▙▚▛▜▝▞▟ ", 60)


@in_rows
def write_braille(random: Random, _row: int) -> str:
    """Braille, as plots in terminals use it."""
    return "".join(chr(0x2800 + random.randrange(256)) for _ in range(50))


@in_rows
def write_kaomoji(random: Random, _row: int) -> str:
    """Faces of characters."""
    eyes, mouths, arms = "◕ಠ•ᵔ≧°╥ʘ★", "‿_ω益д▽ᴥ﹏", ("ノ", "╯", "ง", "ヽ", "っ", "┻━┻", "♡")
    faces = (
        f"({(eye := random.choice(eyes))}{random.choice(mouths)}{eye}){random.choice(arms)}"
        for _ in range(6)
    )
    return "  ".join(faces)


@in_one_line
def write_emoji(random: Random, _row: int) -> str:
    """Emoji in a row."""
    return chr(random.choice((0x1F300, 0x1F400, 0x1F600, 0x1F680, 0x1F900)) + random.randrange(80))


@in_rows
def write_emoji_families(random: Random, _row: int) -> str:
    """Emoji of several characters: families, skins, flags."""
    skins = "🏻🏼🏽🏾🏿"
    pieces = (
        random.choice("👩👨🧑👧👦")
        + random.choice(skins)
        + "\u200d"
        + random.choice("🚀🌾🍳🎓🔬💻"),
        "".join(chr(0x1F1E6 + random.randrange(26)) for _ in range(2)),
        random.choice("0123456789#*") + "\ufe0f\u20e3",
        "👩\u200d👩\u200d" + random.choice("👧👦") + "\u200d👦",
    )
    return " ".join(random.choices(pieces, k=8))


@in_rows
def write_dingbats(random: Random, _row: int) -> str:
    """Arrows, stars and other signs."""
    return " ".join(
        chr(random.choice((0x2190, 0x2600, 0x2700, 0x2B00)) + random.randrange(110))
        for _ in range(30)
    )


@in_rows
def write_morse(random: Random, _row: int) -> str:
    """Morse."""
    return " / ".join(
        " ".join(draw(random, ".-", random.randint(1, 5)) for _ in range(random.randint(2, 7)))
        for _ in range(4)
    )


@in_rows
def write_sounds(random: Random, _row: int) -> str:
    """Phonetic transcription."""
    heads, middles = "ptkbdɡfvθðszʃʒhmnŋlɹjwʔɬɣχ", "iɪeɛæaɑɒɔoʊuʌəɜyøœɨ"
    word = (
        "ˈ" * (random.random() < 0.5)
        + "".join(
            random.choice(heads) + random.choice(middles) for _ in range(random.randint(1, 3))
        )
        + "ː" * (random.random() < 0.3)
        for _ in range(9)
    )
    return "/" + " ".join(word) + "/"


@in_one_line
def write_punctuation(random: Random, _row: int) -> str:
    """Punctuation without order."""
    return draw(random, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", 50)


@in_rows
def write_rules_and_separators(random: Random, _row: int) -> str:
    """Lines of one sign."""
    return random.choice("=-_*#~+.<>|/\\") * random.randint(3, 90)


@in_one_line
def write_random_letters(random: Random, _row: int) -> str:
    """Lower-case letters without a break."""
    return draw(random, LOWER, 100)


@in_rows
def write_words_of_random_letters(random: Random, _row: int) -> str:
    """Words that are none."""
    return " ".join(draw(random, LOWER, random.randint(1, 12)) for _ in range(10))


@in_rows
def write_random_capitals(random: Random, _row: int) -> str:
    """Groups of five capitals, as ciphers have them."""
    return " ".join(draw(random, UPPER, 5) for _ in range(12))


@in_one_line
def write_mixed_case(random: Random, _row: int) -> str:
    """Words in letters of both cases."""
    return "".join(random.choice((letter, letter.upper())) for letter in pick(random)) + " "


@in_rows
def write_numerals_and_letters(random: Random, _row: int) -> str:
    """Letters written with digits."""
    return " ".join(random.choices(WORDS, k=8)).translate(str.maketrans("aeiost", "431057"))


@in_one_line
def write_spaced_letters(random: Random, _row: int) -> str:
    """Words with a blank after every letter."""
    return " ".join(pick(random)) + "   "


@in_one_line
def write_zalgo(random: Random, _row: int) -> str:
    """Letters under heaps of marks."""
    marks = "".join(chr(0x300 + random.randrange(0x70)) for _ in range(random.randint(3, 12)))
    return random.choice(LOWER + " ") + marks


@in_one_line
def write_wide_letters(random: Random, _row: int) -> str:
    """Full-width forms."""
    return "".join(chr(0xFF01 + random.randrange(94)) for _ in range(9)) + "\u3000"


@in_one_line
def write_invisible_signs(random: Random, _row: int) -> str:
    """Words with signs between them that nobody sees."""
    return pick(random) + draw(random, "\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u202a", 4)


@in_one_line
def write_odd_spaces(random: Random, _row: int) -> str:
    """White space of every width."""
    spaces = "\u00a0\u2002\u2003\u2009\u200a\u202f\u3000\t\v\f \r\n"
    return draw(random, spaces, random.randint(1, 9)) + draw(random, LOWER, 2)


@in_one_line
def write_wrong_decoding(random: Random, _row: int) -> str:
    """UTF-8 that was read as Latin-1, twice."""
    text = "".join(chr(random.randrange(0xC0, 0x24F)) for _ in range(6))
    return text.encode().decode("latin-1").encode().decode("latin-1") + " "


@in_one_line
def write_private_use(random: Random, _row: int) -> str:
    """Glyphs of icon fonts."""
    return chr(0xE000 + random.randrange(0x1900)) + " " * (random.random() < 0.2)


@in_rows
def write_superscripts(random: Random, _row: int) -> str:
    """Raised and lowered digits, fractions, circled numbers."""
    return draw(random, "⁰¹²³⁴⁵⁶⁷⁸⁹₀₁₂₃₄₅₆₇₈₉½⅓⅔⅛⅞①②③⑳Ⅷⅻ x", 40)


BLOCKS = {
    "Hangul": (0xAC00, 0xD7A3),
    "rare Han": (0x3400, 0x4DB5),
    "Han of plane 2": (0x20000, 0x2A6D0),
    "Ethiopic": (0x1200, 0x1248),
    "Cherokee": (0x13A0, 0x13EF),
    "Canadian syllabics": (0x1400, 0x167F),
    "runes": (0x16A0, 0x16EA),
    "cuneiform": (0x12000, 0x12399),
    "hieroglyphs": (0x13000, 0x1342E),
    "Tibetan": (0x0F40, 0x0F6C),
    "Myanmar": (0x1000, 0x1049),
    "Yi": (0xA000, 0xA48C),
    "Gothic": (0x10330, 0x1034A),
    "Arabic forms": (0xFB50, 0xFBB1),
    "Latin Extended": (0x1E00, 0x1EFF),
    "Glagolitic": (0x2C00, 0x2C5F),
}


def _of_block(first: int, last: int) -> Kind:
    """Make a kind of text from one block of Unicode: random words of its letters."""

    def write_word(random: Random, _row: int) -> str:
        return "".join(chr(random.randint(first, last)) for _ in range(random.randint(2, 9)))

    return of_rows(write_word, between=" ")


KINDS |= {f"letters of {name}": _of_block(*ends) for name, ends in BLOCKS.items()}


@in_one_line
def write_letters_of_every_block(random: Random, _row: int) -> str:
    """Any letter of the first plane."""
    while not unicodedata.category(letter := chr(random.randrange(0xA1, 0xD7FF))).startswith("L"):
        pass
    return letter


def _mix_kinds(random: Random, size: int) -> str:
    """Write short runs of many kinds, one after the other."""
    runs, length = list[str](), 0
    plain = [name for name in KINDS if name != "mixture"]
    while length < size:
        runs.append(KINDS[random.choice(plain)](random, random.randint(40, 400)))
        length += len(runs[-1])
    return "".join(runs)[:size]


KINDS["mixture"] = _mix_kinds
