"""Words of commands that a shell expands, and values glued to options: no way of writing gets past a denying rule."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.tools import Rule, RuleGuard
from kairo_team.tools.globs import name_glob, names_meet
from tests.tools.test_guards import build, decided

pytestmark = pytest.mark.anyio

NO_SECRETS: Final = [Rule.deny("*(secrets/**)"), Rule.allow("bash"), Rule.allow("read(**)")]
BASH: Final = shutil.which("bash")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build(tmp_path_factory.mktemp("words"))
    (root / "secrets/key").write_text("k")
    (root / "src/deep/a.py").write_text("a")
    (root / "src/up").symlink_to(root)
    return root


@pytest.mark.parametrize(
    "word",
    [
        *("s?crets/key", "s*/key", "[s]ecrets/key", "*/key", "*/*", "*", "[a-z]*/key", "[!x]ecrets/*", "s*", "./s*/k*"),
        *(
            "[[:alpha:]]ecrets/key",
            "?ecrets",
            "src/../s*/key",
            "src//..//s*",
            "*/../secrets/key",
            "**/key",
            "src/h*/k*",
        ),
        *("src/hid*/key", "*/hidden/key", "src/*/../secrets/key", "src/u*/secrets/key", ".?/work/secrets/key", ".*/s*"),
        *("{root}/s*/key", "/{root}/secrets/key", "{root}/[s]ecrets", "S?CRETS/key", "/*/../{root}/s*"),
        *("{secrets,src}/key", "s{e,x}crets/key", "{src,{x,secrets}}/key", "s{d..f}crets/key", "{a\\,b,secrets}/key"),
        *("s{'e',x}crets/key", "'s'?crets/key", '"s"*/key', "s\\e?rets/key", "sec''*/key", "@(secrets|x)/key"),
        *("s@(e)crets/key", "+([a-z])/key", "s!(x)/key", "$'\\x73ecrets/key'", "$'se'crets/key", '$"se"crets/key'),
        *(
            "$X",
            "$X/key",
            "${X}crets/key",
            "src/$X",
            "$(echo c | tr c s)ecrets/key",
            "`echo s`ecrets/key",
            "${X:-s}*/key",
        ),
        *("-fsecrets/key", "--file=secrets/key", "if=secrets/key", "@secrets/key", "-fs*/key", "--file=s?crets/key"),
        *("-xzfsecrets/key", "-I./secrets", "-I{root}/secrets/key", "-I{root}/s*", "HEAD:secrets/key", "a@b:s*/key"),
        *(
            "-Wl,-Tsecrets/key",
            "-ofile=secrets/key",
            "--file='secrets/key'",
            "-f's*/key'",
            "+secrets/key",
            "x=y=secrets",
        ),
        *("<secrets/key", "2>s*/key", "x;cat<s?crets/key", "~+/secrets/key", "--file=~+/s*", "cat${IFS}s*/key"),
        *(
            "'bash -c \"cat se''crets/key\"'",
            "bash -c 'cat $X'",
            "sh -c 'cat s{e,x}crets/key'",
            "eval 'cat ${X}ecrets/key'",
        ),
        *(
            'bash -c \'bash -c "cat s?cr\\"\\"ets/key"\'',
            "x # it's\ncat s*/key # '",
            "<<E\nit's\nE\ncat s*/key # '",
            "'s*/key'",
            '"s*/key"',
            "file:secrets/key",
            "file://{root}/secrets/key",
            "file:s*/key",
        ),
    ],
)
@pytest.mark.parametrize("argument", ["command", "undeclared"])
async def test_third_o18_a_word_that_a_shell_expands_to_a_denied_path_is_denied(
    work: Path, word: str, argument: str
) -> None:
    word = word.replace("{root}", str(work))
    guard = RuleGuard(NO_SECRETS, root=work)
    for call in (f"cat {word}", f"grep -n x {word} src", f"true; cat {word} | sh"):
        assert await decided(guard, "bash", **{argument: call}) == "deny"


@pytest.mark.parametrize(
    "call",
    [
        *(
            "cat sec\\\nrets/key",
            "cat 's'\\\necrets/key",
            'cat "sec\\\nrets/key"',
            "cat s\\\r\necrets/key",
            "cat s^\r\necrets/key",
        ),
        *("git pu\\\nsh origin", "g\\\nit push origin", "true && git \\\n  pu\\\nsh origin", "git pu`\r\nsh origin"),
    ],
)
async def test_third_o18_a_word_that_goes_on_in_the_next_line_is_one_word(work: Path, call: str) -> None:
    guard = RuleGuard([Rule.deny("bash(git push *)"), *NO_SECRETS], root=work)
    assert await decided(guard, "bash", command=call) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        *(
            "ls lib/*",
            "ls *.py",
            "git add *.py lib/**/*.ts",
            "cat src/[ab].py",
            "ls src/deep/../*.py",
            "rm -rf build/*",
        ),
        *("grep -rn 'foo.*bar' src", "grep -E '^a?b+$' src/a.py", "sed -n '$p' src/a.py", "sed 's/a*/b/g' src/a.py"),
        *(
            "awk '{print $1, $2}' src/a.py",
            "find . -name '*.py' -exec wc -l {} +",
            "cp src/{a,b}.py build",
            "mkdir -p a/{b,c}",
        ),
        *("echo $? $# $$", "echo $((1 + 2))", "git diff HEAD~1 HEAD^ -- src/a.py", "git log --format='%h %an' -3"),
        *(
            "tar -xzf src/a.tgz -C build",
            "gcc -Isrc -Wl,-Tsrc/x.ld -o build/a src/a.c",
            "python -m pytest -k 'not slow'",
        ),
        *('curl -d \'{"a": 1, "b": [2, 3]}\' https://example.org/x?y=1', "dd if=src/a of=build/b bs=4k", "ls -la"),
        *("cat secrets.txt my_secrets/key src/secrets.py", "git commit -m 'costs $5, see * in the notes of a.py'"),
        "git commit -m 'The price is $100 (50% off); {a, b} & more'",
        "echo 'use `code` here'",
        "git commit -m '- a bullet: a * b\n- and [another] one?'",
        "psql -c \"SELECT * FROM people WHERE name = 's*'\"",
    ],
)
async def test_third_o18_ordinary_commands_stay_usable(work: Path, command: str) -> None:
    guard = RuleGuard([Rule.deny("*(secrets/**)"), Rule.deny("bash(git push *)"), Rule.allow("bash")], root=work)
    assert await decided(guard, "bash", command=command) == "allow"


@pytest.mark.parametrize("word", ["s?crets/key", "-fsecrets/key", "--file=s*/key", "src/hid*/key"])
async def test_third_o18_so_it_is_in_a_list_of_words(work: Path, word: str) -> None:
    assert await decided(RuleGuard(NO_SECRETS, root=work), "bash", argv=["cat", "-n", word]) == "deny"


@pytest.mark.parametrize(
    ("path", "action"),
    [
        *(("s?crets/key", "deny"), ("*/key", "deny"), ("src/h*/key", "deny"), ("{src,secrets}/key", "deny")),
        *(("src/*.py", "allow"), ("src/[slug]/page.tsx", "allow"), ("src/$id.tsx", "allow"), ("src/{a}.py", "allow")),
    ],
)
async def test_third_o18_a_tool_may_expand_the_wildcards_of_its_path(work: Path, path: str, action: str) -> None:
    assert await decided(RuleGuard(NO_SECRETS, root=work), "read", path=path) == action


@pytest.mark.parametrize(
    ("glob", "denied", "allowed"),
    [
        ("**/*.pem", ["cat *", "cat s*.p?m", "cat -k*.pem", "cat src/{a,b}.pem"], ["cat *.py", "ls src/?.txt"]),
        (".env", ["cat .e*", "cat .[e]nv", "cat *", "cat {.env,x}"], ["cat .git*", "ls src/*"]),
        ("src/private/**", ["ls src/p*", "ls */private", "ls */*"], ["ls src/*.py", "ls private", "ls docs/*"]),
        ("stra\u00dfe/**", ["cat stra?e/x", "cat STRASS?/x", "cat s*"], ["cat a*"]),
        ("./my key", ["cat my*", "cat 'my k'*", "cat my\\ key", "cat -f'my key'"], ["cat your*"]),
        ("git push *", ["git push", "git p?sh"], ["ls *", "cat g*", "echo $X"]),
    ],
)
async def test_third_o18_every_denying_glob_is_compared_with_the_words_globs(
    work: Path, glob: str, denied: list[str], allowed: list[str]
) -> None:
    guard = RuleGuard([Rule.deny(f"bash({glob})"), Rule.allow("bash")], root=work)
    given = [command for command in denied + allowed if await decided(guard, "bash", command=command) == "deny"]
    assert given == denied


async def test_third_o18_what_is_too_much_to_look_at_counts_as_denied(work: Path) -> None:
    guard = RuleGuard(NO_SECRETS, root=work)
    many = "x{" + ",".join(f"{{a{number},b}}" for number in range(500)) + "}"
    for command in (
        f"cat {many}",
        "cat " + "{a,b}" * 40,
        "cat " + "?" * 5_000,
        "cat " + "=*" * 2_000,
        "ls " + ".*/" * 60,
    ):
        assert await decided(guard, "bash", command=command) == "deny"
    folder = work / "src/deep/many"
    folder.mkdir(exist_ok=True)
    for number in range(10_001):
        (folder / str(number)).touch()
    assert await decided(guard, "bash", command="cat src/deep/many/*") == "deny"
    shutil.rmtree(folder)


# ---------------------------------------------------------------- places that differ between processes


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build(tmp_path_factory.mktemp("places"))
    (root / "secrets/key").write_text("k")
    for name, target in (("me", "/proc/self/cwd"), ("procs", "/proc"), ("up", str(root))):
        (root / "src" / name).symlink_to(target)
    return root


def read_by_bash(word: str, folder: Path) -> bytes:
    """Return what bash reads from a path, with the folder open as two of its files; places it cannot read are none."""
    assert BASH
    env = {"PATH": os.environ["PATH"], "P": "/proc/self" if word.startswith("$P") else "/proc/s", "U": "src"}
    script = f"exec 9<. <.; cat {word}"
    done = subprocess.run([BASH, "-c", script], cwd=folder, env=env, capture_output=True, check=False)
    return done.stdout[:1]


@pytest.mark.skipif(BASH is None or not Path("/proc/self/cwd").exists(), reason="needs bash and Linux's /proc")
@pytest.mark.parametrize(
    "word",
    [
        *("/proc/self/cwd/secrets/key", "/proc/thread-self/cwd/secrets/key", "/proc/$$/cwd/secrets/key"),
        *("/proc/self/task/*/cwd/secrets/key", "//proc/self/../self/cwd/secrets/key", "/dev/fd/9/secrets/key"),
        *("/proc/self/c?d/secrets/key", "/p*/self/cwd/secrets/key", "/proc/{self,x}/cwd/secrets/key"),
        *("/proc/$BASHPID/cwd/secrets/key", "$P/cwd/secrets/key", "${P}elf/cwd/secrets/key", "$U/up/secrets/key"),
        *("/proc/self/fd/9/secrets/key", "src/me/secrets/key", "src/m*/secrets/key", "src/procs/self/cwd/secrets/key"),
        *("src/procs/s*/cwd/secrets/key", "/proc/self/root{root}/secrets/key", "'/proc/self/cwd/secrets/key'"),
        *("/dev/stdin/secrets/key", "/proc/self/cwd/sec?ets/key"),
    ],
)
async def test_third_o18_a_place_that_differs_between_processes_may_be_any_place(places: Path, word: str) -> None:
    word = word.replace("{root}", str(places))
    assert read_by_bash(word, places) == b"k"
    for glob in ("secrets/**", "secrets/key", "**/key"):
        guard = RuleGuard([Rule.deny(f"*({glob})"), Rule.allow("bash"), Rule.allow("read")], root=places)
        for command in (f"cat {word}", f"cat -f{word}", f"cat --file={word}", f"true; cat<{word}"):
            assert await decided(guard, "bash", command=command) == "deny"
        assert "$" in word or "'" in word or await decided(guard, "read", path=word) == "deny"
    anywhere = RuleGuard([Rule.allow("read(/**)"), Rule.allow("bash(cat *)")], root=places)
    if "$" not in word and "'" not in word:
        assert await decided(anywhere, "read", path=word) == "deny"
        assert await decided(anywhere, "bash", command="cat x", file=word) == "deny"


@pytest.mark.parametrize("path", ["/proc/9999999/cwd/secrets/key", "/proc/99999*/cwd/secrets/key", "/proc/1/root/x"])
async def test_third_o18_so_it_is_for_a_process_that_begins_later(work: Path, path: str) -> None:
    guard = RuleGuard(NO_SECRETS, root=work)
    assert await decided(guard, "bash", command=f"cat {path}") == "deny"
    assert await decided(guard, "read", path=path) == "deny"


async def test_third_o18_rules_about_commands_alone_and_plain_devices_are_as_they_were(work: Path) -> None:
    commands = RuleGuard([Rule.deny("bash(git push *)"), Rule.allow("bash")], root=work)
    assert await decided(commands, "bash", command="ls /proc/self/fd") == "allow"
    guard = RuleGuard(NO_SECRETS, root=work)
    for command in ("cat /proc/cpuinfo /proc/sys/vm/swappiness", "ls -l /dev", "python /dev/stdin", "ls x 2>/dev/null"):
        assert await decided(guard, "bash", command=command) == "allow"
    assert await decided(guard, "bash", command="echo no > /dev/stderr") == "allow"
    names = RuleGuard([Rule.deny("*(**/*.pem)"), Rule.allow("bash")], root=work)
    assert await decided(names, "bash", command="cp $SRC/a.py ${DST}/b.py") == "allow"
    assert await decided(names, "bash", command="cp $SRC/.. $SRC.") == "deny"


# ---------------------------------------------------------------- laws

WAYS: Final[list[Callable[[str], str]]] = [
    *[lambda letter: letter] * 6,
    lambda letter: "?",
    lambda letter: "*",
    lambda letter: f"[{letter}]",
    lambda letter: "[a-z]",
    lambda letter: "[!0-9]",
    lambda letter: f"{{{letter},x}}",
    lambda letter: f"{{0,{{{letter},y}}}}",
    lambda letter: f"'{letter}'",
    lambda letter: f'"{letter}"',
    lambda letter: f"\\{letter}",
    lambda letter: f"''{letter}\"\"",
    lambda letter: f"$'\\x{ord(letter):x}'",
    lambda letter: f'$"{letter}"',
    lambda letter: f"@({letter}|z)",
    lambda letter: f"+({letter})",
    lambda letter: f"$(printf {letter})",
    lambda letter: f"`printf {letter}`",
    lambda letter: f"${{X:-{letter}}}",
]
ROADS: Final = ["", "./", "src/../", "src/hidden/../", "*/../", "~+/", "$PWD/", "src/deep/../../", "src/up/", "s*/u?/"]
GLUES: Final = ["", "-f", "--file=", "if=", "@", "-xf", "-I", "HEAD:", "x=y="]


@st.composite
def words(draw: st.DrawFn) -> str:
    """Draw a way to write a path: letters as they are, as wildcards, in quotes, in braces, or filled in."""
    target = draw(st.sampled_from(["secrets/key", "secrets", "src/hidden/key", "src/a.py", "src/deep", "secrets/new"]))
    written = [letter if letter in "/." else draw(st.sampled_from(WAYS))(letter) for letter in target]
    return draw(st.sampled_from(ROADS)) + "".join(written)


def expanded(word: str, work: Path) -> list[Path]:
    """Return where the paths lead that bash makes of a word."""
    assert BASH
    options = [part for option in ("extglob", "globstar", "nullglob") for part in ("-O", option)]
    command = [BASH, *options, "-c", f"printf '%s\\0' {word}"]
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run(command, cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return [Path(os.path.realpath(work / found)) for found in os.fsdecode(done.stdout).split("\0") if found]


@pytest.mark.skipif(BASH is None, reason="needs bash")
@given(drawn=st.lists(words(), min_size=1, max_size=3), glue=st.sampled_from(GLUES))
async def test_third_o18_law_what_bash_expands_to_a_denied_path_is_never_allowed(
    work: Path, drawn: list[str], glue: str
) -> None:
    guard = RuleGuard(NO_SECRETS, root=work)
    for word in drawn:
        if any(path.is_relative_to(work / "secrets") for path in expanded(word, work)):
            for command in (f"cat {glue}{word}", f"cd .;cat<{word}", f"bash -c 'true'; env x={word} ls"):
                assert await decided(guard, "bash", command=command) == "deny", command


@given(
    one=st.text("ab*?", max_size=8),
    other=st.text("ab*?", max_size=8),
    name=st.text("ab", max_size=6),
)
def test_third_o18_law_two_globs_meet_where_one_name_fits_both(one: str, other: str, name: str) -> None:
    meets = names_meet(name_glob(one), name_glob(other))
    assert meets == names_meet(name_glob(other), name_glob(one))
    if fnmatchcase(name, one) and fnmatchcase(name, other):
        assert meets
    if not any(letter in "*?" for letter in one):
        assert meets == fnmatchcase(one, other)


@pytest.mark.skipif(BASH is None, reason="needs bash")
def test_third_o18_the_ways_of_writing_are_ways_that_bash_knows(work: Path) -> None:
    """The law is not empty: bash reads each way of writing a letter as that letter."""
    assert all(work / "secrets" in expanded(f"{way('s')}ecrets", work) for way in WAYS)


# ---------------------------------------------------------------- work


async def steps(guard: RuleGuard, **arguments: Any) -> int:
    """Count the texts that are resolved to decide, and their letters: a measure that no other program disturbs."""
    count = 0
    resolve = os.path.realpath

    def counted(path: str) -> str:
        nonlocal count
        count += 100 + len(path)
        return resolve(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os.path, "realpath", counted)
        await guard.check("bash", arguments, "system")
    return count


@pytest.mark.sampled
@pytest.mark.parametrize(
    "make",
    [
        lambda size: {"commands": [f"git status {number}" for number in range(size)]},
        lambda size: {"paths": [f"src/{number}.py" for number in range(size)]},
        lambda size: {"others": ["x" * 99] * size},
    ],
)
async def test_third_o23_a_call_of_many_texts_is_linear_and_then_bounded(
    work: Path, make: Callable[[int], dict[str, Any]]
) -> None:
    guard = RuleGuard(NO_SECRETS, root=work)
    few, more, many, most = [await steps(guard, **make(size)) for size in (50, 200, 1_500, 6_000)]
    assert more < 4.5 * few
    assert most < 4.5 * many
    assert many < 8 * more
    assert await decided(guard, "bash", **make(6_000)) == "deny"
    reason = (await guard.check("bash", make(6_000), "system")).reason
    assert "more than 1,000 texts or 100,000 characters, which is too much to examine," in reason


async def test_third_o23_a_long_path_is_not_resolved_name_by_name(work: Path) -> None:
    guard = RuleGuard(NO_SECRETS, root=work)
    assert await steps(guard, path="a/" * 700_000) <= await steps(guard, path="a/" * 2_000)
    assert await decided(guard, "read", path="a/../" * 280_000 + "secrets/key") == "deny"
    assert await decided(RuleGuard([Rule.allow("read")], root=work), "read", path="a/" * 700_000) == "allow"


async def test_third_o23_globs_of_one_call_look_at_no_more_entries_together(work: Path) -> None:
    (work / "src/deep/round").symlink_to(work)
    try:
        guard = RuleGuard([Rule.deny("*(nothing/at/all)"), Rule.allow("bash")], root=work)
        one = await steps(guard, command="ls " + "*/" * 8)
        many = await steps(guard, commands=["ls " + "*/" * 8] * 10)
        assert many < 12 * one
        assert await decided(guard, "bash", command="ls " + "*/" * 2_000) == "deny"
    finally:
        (work / "src/deep/round").unlink()
