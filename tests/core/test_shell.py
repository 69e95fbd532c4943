"""Shell text: what it touches, whatever it is."""

import posixpath
import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldline.core.ledger.shell_commands import Command, Touch, list_touches, parse_commands

SHORT = {"read": "r", "written": "w", "removed": "x", "moved": "m"}
PATCH = """*** Begin Patch
*** Add File: src/new.py
+print("it's")
*** Update File: src/old.py
*** Move to: src/kept.py
@@
-a
+b
*** Update File: src/b.py
@@
+*** not a header
*** Delete File: gone.txt
*** End Patch
"""
PATCHED = "w:src/new.py m:src/old.py>src/kept.py w:src/b.py x:gone.txt"
CASES = [
    # reading
    ("cat a.py", "r:a.py"),
    ("cat -n src/a.py src/b.py", "r:src/a.py r:src/b.py"),
    ("cat", ""),
    ("cat -", ""),
    ("cat -- -n.txt", "r:-n.txt"),
    ("/bin/cat /etc/hosts", "r:/etc/hosts"),
    ("head -n 20 f", "r:f"),
    ("head -20 f", "r:f"),
    ("head -n20 f g", "r:f r:g"),
    ("head -n -5 f", "r:f"),
    ("head --lines=3 f", "r:f"),
    ("head --lines 3 f", "r:f"),
    ("tail -c +5 f", "r:f"),
    ("tail +5 f", "r:f"),
    ("tail -f log/dev.log", "r:log/dev.log"),
    ("tail -50 /tmp/out.log | grep -i error", "r:/tmp/out.log"),
    ("less +G f", "r:f"),
    ("nl -ba f", "r:f"),
    ("nl -b a f", "r:f"),
    ("bat --style=plain -r 1:20 f.rs", "r:f.rs"),
    ("wc -l a b", "r:a r:b"),
    ("xxd -l 16 a.bin", "r:a.bin"),
    ("hexdump -C -n 64 a.bin", "r:a.bin"),
    ("od -A x -t x1z a.bin", "r:a.bin"),
    ("strings -n 8 a.out", "r:a.out"),
    ("cut -d: -f1 /etc/passwd", "r:/etc/passwd"),
    ("cut -d ',' -f 2 a.csv", "r:a.csv"),
    ("sort -k 2 -t , a.csv | uniq -c", "r:a.csv"),
    ("sort -u -o f f", "r:f w:f"),
    ("sed -n '1,5p' f", "r:f"),
    ("sed -e x -e y f", "r:f"),
    ("sed -n -e '1,2p' f g", "r:f r:g"),
    ("ls -l | sed -n '1,40p'", ""),
    ("awk '{print $1}' f", "r:f"),
    ("awk -F: -v n=3 '{print $n}' OFS=, f", "r:f"),
    ("awk -f prog.awk f", "r:f"),
    ("perl -ne 'print if /x/' f", "r:f"),
    ("diff -u a.py b.py", "r:a.py r:b.py"),
    ("diff -r a b", ""),
    ("cmp a b", "r:a r:b"),
    ("jq . package.json", "r:package.json"),
    ("jq -r --arg n v '.a[$n]' f.json", "r:f.json"),
    ("curl -s https://x.y/z | jq -e '.a'", ""),
    ('open "src/a b.py" 120', "r:src/a b.py"),
    ("source .venv/bin/activate", "r:.venv/bin/activate"),
    (". ./env.sh", "r:env.sh"),
    ("grep -n foo a.py src/b", "r:a.py r:src/b"),
    ("grep -rn foo src/core", ""),
    ("grep -rn foo src/core/a.py", "r:src/core/a.py"),
    ("grep -e a -e b -A 3 x.py", "r:x.py"),
    ("grep foo Makefile", ""),
    ("grep -r foo . --include='*.py'", ""),
    ("grep foo *.py", ""),
    ('grep -n "a\\|b" src/main.ts src/tui/r.ts', "r:src/main.ts r:src/tui/r.ts"),
    ("rg -n 'class (A|B)' src/foldline", ""),
    ("rg -g '*.py' foo src/a.py", "r:src/a.py"),
    ("rg --files -g AGENTS.md", ""),
    # not reading
    ("ls -la src", ""),
    ("file a.bin; stat a.py", ""),
    ("find . -name '*.py' -exec rm {} \\;", ""),
    ("python x.py", ""),
    ("pytest tests/x.py -q", ""),
    ("node x.js && ./run.sh a.txt", ""),
    ("mkdir -p a/b", ""),
    ("ruff check --fix a.py; black b.py", ""),
    ("which python3 2>/dev/null", ""),
    ("", ""),
    ("# cat a", ""),
    ("echo cat a", ""),
    # writing
    ("echo hi > f", "w:f"),
    ("echo hi >> logs/f 2>&1", "w:logs/f"),
    ("make 2> err.txt > out.txt", "w:err.txt w:out.txt"),
    ("make &> all.log", "w:all.log"),
    ("make &>> all.log", "w:all.log"),
    ("make >& all.log", "w:all.log"),
    ("echo x >| f", "w:f"),
    ("echo x>f", "w:f"),
    ("echo x2>f", "w:f"),
    ("make > /dev/null 2>&1", ""),
    ("echo x >&2", ""),
    ("> empty", "w:empty"),
    ("sort < in > out", "r:in w:out"),
    ("cat <<< text", ""),
    ("cat a > b", "r:a w:b"),
    ("make | tee -a build.log", "w:build.log"),
    ("echo x | sudo tee /etc/a /etc/b > /dev/null", "w:/etc/a w:/etc/b"),
    ("sed -i 's/a/b/' f", "w:f"),
    ("sed -i.bak -e 's/a/b/' f g", "w:f w:g"),
    ("sed -i '' 's/a/b/' f", "w:f"),
    ("sed -i '' -e 's/a/b/' f", "w:f"),
    ('sed -i "s/$a/b/" f', "w:f"),
    ("sed -Ei 's/(a)/b/' f", "w:f"),
    ("sed --in-place=.bak 's/a/b/' f", "w:f"),
    ("perl -pi -e 's/a/b/' f", "w:f"),
    ("perl -i -pe 's/a/b/' f", "w:f"),
    ("perl -0777 -i.bak -pe 's/a/b/s' f", "w:f"),
    ("perl script.pl f", ""),
    ("touch a b", "w:a w:b"),
    ("touch -d yesterday a", "w:a"),
    ("truncate -s 0 f", "w:f"),
    ("dd if=/dev/zero of=disk.img bs=1M count=1", "w:disk.img"),
    ("dd if=a of=b", "r:a w:b"),
    ("create src/new.py", "w:src/new.py"),
    ("cp a b", "r:a w:b"),
    ("cp a dir/", "r:a w:dir/a"),
    ("cp x/a .", "r:x/a w:a"),
    ("cp a b dir", "r:a r:b w:dir/a w:dir/b"),
    ("cp -t dir a b", "r:a r:b w:dir/a w:dir/b"),
    ("cp f{,.bak}", "r:f w:f.bak"),
    ("cp *.py lib", ""),
    ("cp $src dst.py", "w:dst.py"),
    ("cp a $DIR", "r:a"),
    ("install -m 755 a /usr/local/bin/", "r:a w:/usr/local/bin/a"),
    ("install -d a/b", ""),
    ("patch -p1 < x.diff", "r:x.diff"),
    ("patch src/a.c x.diff", "r:x.diff w:src/a.c"),
    ("git checkout -- a.py b.py", "w:a.py w:b.py"),
    ("git checkout HEAD~1 -- a.py", "w:a.py"),
    ("git checkout -b refactor", ""),
    ("git restore a.py", "w:a.py"),
    ("git restore --source HEAD~2 a.py", "w:a.py"),
    ("git restore --staged a.py", ""),
    ("git checkout -- . && git restore .", ""),
    ("git -C sub restore a.py", "w:sub/a.py"),
    ("git apply x.patch", ""),
    ("git add -A && git commit -m 'x > y'", ""),
    ("curl -sSLo f.tgz https://x.y/f", "w:f.tgz"),
    ("curl -o a/f -H 'A: b' https://x.y/f", "w:a/f"),
    ("curl -LO https://x.y/d/f.tgz?x=1", "w:f.tgz"),
    ("curl https://x.y/f", ""),
    ("wget -q -O f https://x.y/z", "w:f"),
    ("wget -qO- https://x.y/z", ""),
    ("wget https://x.y/d/z.zip", "w:z.zip"),
    ("tar -cf f.tar src", "w:f.tar"),
    ("tar czf f.tgz src", "w:f.tgz"),
    ("tar -xzf f.tgz -C out", ""),
    ("zip -r out.zip src", "w:out.zip"),
    ("zip -r out src", "w:out.zip"),
    # removing and moving
    ("rm a", "x:a"),
    ("rm -rf build dist", "x:build x:dist"),
    ("rm -f -- -x", "x:-x"),
    ("rm a.{py,txt}", "x:a.py x:a.txt"),
    ("rm {a,b}{1,2}", "x:a1 x:a2 x:b1 x:b2"),
    ("rm a{1..9}", ""),
    ("rm *.pyc 'a*'", "x:a*"),
    ('rm $TMP/x "$HOME/y" `pwd`/z', ""),
    ("unlink a; rmdir b", "x:a x:b"),
    ("shred -u a", "x:a"),
    ("shred -n 3 a", "w:a"),
    ("git rm -r old", "x:old"),
    ("git rm --cached a", ""),
    ("mv a b", "m:a>b"),
    ("mv a dir/", "m:a>dir/a"),
    ("mv x/a y/b dir", "m:x/a>dir/a m:y/b>dir/b"),
    ("mv -f a.py ../b.py", "m:a.py>../b.py"),
    ("mv a $DIR", "m:a>"),
    ("mv $tmp f.json", "w:f.json"),
    ("mv *.py lib", ""),
    ("git mv a.py src/", "m:a.py>src/a.py"),
    ("rename s/a/b/ *.py", ""),
    # the grammar
    ("cat a;cat b&&cat c||cat d|cat e&cat f\ncat g", "r:a r:b r:c r:d r:e r:f r:g"),
    ("cat 'a b' \"c d\" e\\ f", "r:a b r:c d r:e f"),
    ("cat a\\\n b", "r:a r:b"),
    ("cat \"a\\\"b\" 'c'\"'\"'d'", "r:a\"b r:c'd"),
    ("cat $(ls | head -1) a", "r:a"),
    ("cat \"$(cat x; echo ')')\" b", "r:b"),
    ("cat a # cat b", "r:a"),
    ("cat a#b", "r:a#b"),
    ("(cd src; cat a); cat b", "r:src/a r:b"),
    ("{ cat a; cat b; } > c", "r:a r:b w:c"),
    ("for f in a b; do cat x; done < in.txt", "r:x r:in.txt"),
    ("if [ -f a ]; then cat a; else touch a; fi", "r:a w:a"),
    ("if [[ $a > b && c > d ]]; then rm e; fi", "x:e"),
    ("for ((i=0; i<n; i++)); do cat f; done", "r:f"),
    ("while read l; do echo $l; done < <(cat f)", ""),
    ("diff <(sort a) b", "r:b"),
    ("A=1 B='x y' cat f", "r:f"),
    ("FILES=(cat x); cat y", "r:y"),
    ("sudo -u bob cat f", "r:f"),
    ("env -i A=b cat f", "r:f"),
    ("time nohup timeout -s KILL 10s cat f &", "r:f"),
    ("find . -type f | xargs -0 -n 1 rm -f", ""),
    ("ls | xargs -I{} cp {} bak/", ""),
    ("ls | xargs -I % mv % bak/%.old", ""),
    ("ls | xargs cp a", "r:a"),
    ("cat > f <<EOF\ncat x\nEOF\ncat g", "w:f r:g"),
    ("cat <<'EOF' > f && cat h\nrm -rf /\nit's\nEOF\ncat g", "w:f r:h r:g"),
    ("tee f <<-EOF\n\tx\n\tEOF\ncat g", "w:f r:g"),
    ("cat <<A <<B\n1\nA\ncat x\nB\ncat g", "r:g"),
    ("cat > f <<EOF\nno end", "w:f"),
    ("edit 4:4\ndef f(a) -> float:\nend_of_edit\ncat g", "r:g"),
    ("edit a b False\ncat g", "r:g"),
    ("python - <<'EOF'\nopen('x','w')\nEOF", ""),
    ("git commit -m \"$(cat <<'EOF'\nDon't (yet\nEOF\n)\" && rm a", "x:a"),
    ("bash -c 'cat a; rm b'", "r:a x:b"),
    ('bash -lc "cd src && cat a" > out; cat c', "r:src/a w:out r:c"),
    ("bash -euo pipefail -c 'cat a'", "r:a"),
    ("sh -c \"bash -c 'cat a'\"", "r:a"),
    ("bash script.sh -c 'cat a'", ""),
    ("ssh host 'cat a' > b", "w:b"),
    ("docker exec c bash -c 'rm a'", ""),
    (f"apply_patch <<'EOF'\n{PATCH}EOF\n", PATCHED),
    (f"cat <<'EOF' | apply_patch\n{PATCH}EOF\n", PATCHED),
    (f"cat <<'EOF' |\n{PATCH}EOF\n  apply_patch", PATCHED),
    ("apply_patch " + shlex.quote(PATCH), PATCHED),
    ("bash -lc " + shlex.quote(f"apply_patch <<'EOF'\n{PATCH}EOF"), PATCHED),
    # places
    ("cd src && cat a.py", "r:src/a.py"),
    ("cd src; cd ..; cat ./a.py", "r:a.py"),
    ("cd /x/y && cat ../a b//c /d", "r:/x/a r:/x/y/b/c r:/d"),
    ("cd a && cat b && cd - && cat c", "r:a/b r:c"),
    ("pushd a; cat b; popd; cat c", "r:a/b r:c"),
    ("cd && cat a", "r:~/a"),
    ("cd $DIR && cat a /b", "r:/b"),
    ("cat //etc/hosts a/../b ~/c", "r:/etc/hosts r:b r:~/c"),
    ("cat a\r\ncat b\r\n", "r:a r:b"),
    ("cat 'unfinished", ""),
    ('cat "unfinished', ""),
]


def short(found):
    return " ".join(
        f"{SHORT[touch.state]}:{touch.path}" + (f">{touch.to}" if touch.state == "moved" else "")
        for touch in found
    )


@pytest.mark.parametrize(("text", "want"), CASES, ids=[f"{i}" for i in range(len(CASES))])
def test_what_a_text_touches(text, want):
    assert short(list_touches(text)) == want


def test_a_directory_that_is_given_stands_before_relative_paths():
    text = "cat a ../b /c; cd d; mv e f"
    assert short(list_touches(text, cwd="/w")) == "r:/w/a r:/b r:/c m:/w/d/e>/w/d/f"


def test_words_are_without_quotes_redirections_and_what_stands_before_the_name():
    assert parse_commands("A=1 sudo -E timeout 5 grep 'a b' \"$x\" $(y z) > out 2>&1 # no") == [
        Command(("grep", "a b", "$x", "$(y z)"), (Touch("written", "out"),))
    ]
    assert [c.words for c in parse_commands("if make; then bash -c 'ls -l; pwd'; fi; X=1")] == [
        ("make",),
        ("ls", "-l"),
        ("pwd",),
    ]


FRAGMENTS = [
    *"""'"`\\$(){}[]<>|&;#-~*?=!\n\t\r\0, """,
    *[
        "<<",
        "<<-",
        "<<<",
        ">>",
        "2>&1",
        "&&",
        "||",
        "$((",
        "))",
        "${",
        "$'",
        "[[",
        "]]",
        "EOF",
        "a.py",
        "src/",
        "cd",
        "cat",
        "mv",
        "cp",
        "rm",
        "sed",
        "-i",
        "--",
        "-t",
    ],
    *[
        "git",
        "tar",
        "zip",
        "curl",
        "-O",
        "-o",
        "dd",
        "of=",
        "jq",
        "--arg",
        "awk",
        "perl",
        "-pi",
        "grep",
        "rg",
        "xargs",
        "-I",
        "sudo",
        "bash",
        "-c",
        "{a,b}",
    ],
    *[
        "apply_patch",
        "checkout",
        "restore",
        "tee",
        "patch",
        "install",
        "shred",
        "timeout",
        "env",
        "pushd",
        "popd",
        "for",
        "do",
    ],
    "*** Update File: a\n",
    "*** Move to: b\n",
    " ",
]


@given(st.text() | st.lists(st.sampled_from(FRAGMENTS), max_size=30).map(" ".join))
def test_no_text_is_refused(text):
    assert list_touches(text) == [t for command in parse_commands(text) for t in command.touches]
    assert all(touch.path for touch in list_touches(text, cwd="/w"))


@given(st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=40).map("".join))
def test_no_mix_of_fragments_is_refused(text):
    for command in parse_commands(text):
        assert isinstance(command, Command)


@given(st.text(st.characters(exclude_characters="\0\n", codec="utf-8"), min_size=1))
def test_a_quoted_path_is_that_path(path):
    plain = posixpath.normpath(path)
    plain = plain[1:] if plain.startswith("//") else plain
    want = [] if path == "-" or plain.startswith("/dev/") else [plain]
    assert list_touches(f"cat -- {shlex.quote(path)}") == [Touch("read", p) for p in want]
    if not path.startswith("-"):
        assert list_touches(f"cat {shlex.quote(path)}") == [Touch("read", p) for p in want]
    assert list_touches(f"printf x > {shlex.quote(path)}") == [Touch("written", p) for p in want]


@pytest.mark.parametrize(
    "piece",
    ['"', "$(", "<<A\n", "a|", "'", "`", "\\", "{a,", "(", "((a", "<<A\nA\n", "<<-A\n\tAB\n", "$(<<A ",
     'a"\\"', "cd a;", "cat a ", "rm a\n", "sudo ", "{a,b}", "bash -c 'a;b'\n", " ", "\n", "*** Add File: a\n"],
)  # fmt: skip
def test_any_megabyte_takes_less_than_a_second(piece, timed):
    text = piece * (1_000_000 // len(piece))
    start = time.process_time()
    list_touches(text)
    assert time.process_time() - start < timed(1.0)


def test_a_long_heredoc_is_passed_over(timed):
    """What stands behind a body of any size is understood."""
    text = "cat > f <<'EOF'\n" + "say EOF 'twice\n" * 70_000 + "EOF\nrm g"
    start = time.process_time()
    assert short(list_touches(text)) == "w:f x:g"
    assert time.process_time() - start < timed(1.0)


def test_twenty_thousand_characters_are_understood():
    assert len(list_touches("cat a;" * 3_334)) == 3_334
    assert len(list_touches("a|" * 9_990 + "cat a")) == 1
    assert len(list_touches("(" * 19_990 + "cat a")) == 1
