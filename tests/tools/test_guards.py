"""Permission guards: what a rule fits, however a path or a command is written; and what a side effect opens."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kairo_team.contracts import PermissionGuard
from kairo_team.permissions import SideEffect
from kairo_team.tools import PermissionDecision, Rule, RuleGuard, SideEffectGuard, ToolPermissions
from kairo_team.tools.circuit import CircuitBreaker

pytestmark = pytest.mark.anyio


def build(folder: Path) -> Path:
    """Make a workspace with links that lead out of it, stay inside, lead to secrets, and a loop."""
    root = folder / "work"
    for inside in ("src/deep", "secrets"):
        (root / inside).mkdir(parents=True)
    (folder / "outside").mkdir()
    (root / "src/leak").symlink_to(folder / "outside")
    (root / "src/mine").symlink_to(root / "src/deep")
    (root / "src/hidden").symlink_to(root / "secrets")
    (root / "src/loop").symlink_to(root / "src/loop")
    return root


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return build(tmp_path)


@pytest.fixture(scope="module")
def shared_work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("shared"))


async def decided(guard: PermissionGuard, tool: str, **arguments: Any) -> str:
    return (await guard.check(tool, arguments, "system")).action


# ---------------------------------------------------------------- paths


READ_SRC = [Rule.allow("read_file(src/**)")]


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("src/a.py", "allow"),
        ("src/deep/a.py", "allow"),
        ("src", "allow"),
        ("./src//a.py", "allow"),
        ("src/deep/../a.py", "allow"),
        ("src/mine/a.py", "allow"),
        ("secrets/../src/a.py", "allow"),
        ("{root}/src/a.py", "allow"),
        ("file://{root}/src/a.py", "allow"),
        ("src/odd name\nwith newline", "allow"),
        ("src/a:b", "allow"),
        ("SRC/a.py", "deny"),
        ("srcs/a.py", "deny"),
        ("a.py", "deny"),
        (".", "deny"),
        ("", "deny"),
        ("src/../secrets/key", "deny"),
        ("src/../../outside/x", "deny"),
        ("src/leak", "deny"),
        ("src/leak/x", "deny"),
        ("src/leak/../a.py", "deny"),
        ("src/hidden/key", "deny"),
        ("src/hidden/../a.py", "deny"),
        ("/etc/passwd", "deny"),
        ("src//../../../../../../etc/passwd", "deny"),
        ("~/x", "deny"),
        ("~root/x", "deny"),
        ("file:///etc/passwd", "deny"),
        ("FILE:///etc/passwd", "deny"),
        ("file:/etc/passwd", "deny"),
        ("file://{root}/src/%2e%2e/secrets/key", "deny"),
        ("file://elsewhere{root}/src/a.py", "deny"),
        ("https://example.org/src/a.py", "deny"),
        ("http://[bad/src", "deny"),
        ("src/a.py\x00/etc", "deny"),
        ("src/" + "x" * 100_000, "deny"),
        (5, "deny"),
        (True, "deny"),
        (b"src/a.py", "deny"),
        (Path("src/a.py"), "allow"),
        (["src/a.py", "src/b.py"], "allow"),
        (["src/a.py", "/etc/passwd"], "deny"),
        ({"path": "src/a.py"}, "allow"),
        ({"path": "/etc/passwd"}, "deny"),
        ({"name": "src/a.py"}, "deny"),  # the name may be data, and it leads elsewhere
        ({"src/name": "src/a.py"}, "allow"),
        ({"/etc/passwd": "src/a.py"}, "deny"),
    ],
)
async def test_an_allowing_glob_sees_where_a_path_leads(work: Path, path: Any, action: str) -> None:
    given = path.replace("{root}", str(work)) if isinstance(path, str) else path
    guard = RuleGuard(READ_SRC, root=work)
    if given == "src/" + "x" * 100_000:
        assert await decided(guard, "read_file", path=given) in ("allow", "deny")  # too long to be a file, and no error
    else:
        assert await decided(guard, "read_file", path=given) == action


async def test_a_tilde_is_a_name_and_a_home_and_both_must_be_allowed(work: Path) -> None:
    assert await decided(RuleGuard([Rule.allow("read_file(**)")], root=work), "read_file", path="~/x") == "deny"


async def test_a_loop_of_links_is_no_error_and_leads_nowhere_else(work: Path) -> None:
    assert await decided(RuleGuard(READ_SRC, root=work), "read_file", path="src/loop/../../secrets/x") == "deny"


@pytest.mark.parametrize(
    ("path", "action"),
    [
        ("secrets/key", "deny"),
        ("secrets", "deny"),
        ("SECRETS/key", "deny"),
        ("src/../secrets/key", "deny"),
        ("src/hidden/key", "deny"),
        ("secrets/new\nline", "deny"),
        ("src/a.py", "allow"),
        ("secrets.txt", "allow"),
    ],
)
async def test_a_denying_glob_fits_a_path_however_it_is_written(work: Path, path: str, action: str) -> None:
    guard = RuleGuard([Rule.deny("*(secrets/**)"), Rule.allow("read_file(**)")], root=work)
    assert await decided(guard, "read_file", path=path) == action


async def test_a_denying_glob_fits_a_place_although_a_link_took_its_name(work: Path) -> None:
    guard = RuleGuard([Rule.deny("*(drafts/**)"), Rule.allow("read_file(**)")], root=work)
    (work / "drafts").symlink_to(work / "src")
    assert await decided(guard, "read_file", path="drafts/a") == "deny"


async def test_an_allowed_folder_that_becomes_a_link_opens_nothing(work: Path, tmp_path: Path) -> None:
    guard = RuleGuard([Rule.allow("read_file(build/**)")], root=work)
    assert await decided(guard, "read_file", path="build/x") == "allow"
    (work / "build").symlink_to(tmp_path / "outside")
    assert await decided(guard, "read_file", path="build/x") == "deny"


async def test_a_root_behind_a_link_is_the_place_it_leads_to(work: Path, tmp_path: Path) -> None:
    (tmp_path / "door").symlink_to(work)
    rule = Rule.allow(f"read_file({tmp_path}/door/src/**)")
    for root in (work, tmp_path / "door"):
        for guard in (RuleGuard([rule], root=root), RuleGuard(READ_SRC, root=root)):
            assert await decided(guard, "read_file", path=str(tmp_path / "door/src/a.py")) == "allow"
            assert await decided(guard, "read_file", path="src/a.py") == "allow"


@pytest.mark.parametrize(
    ("glob", "fitting", "not_fitting"),
    [
        ("*", ["a"], ["a/b", ".", "../a"]),
        ("**", ["a", "a/b/c", ".", "note:x"], ["..", "/etc"]),
        ("*.py", ["a.py", ".py"], ["a.pyc", "b/a.py"]),
        ("**/*.py", ["a.py", "b/c/a.py"], ["a.txt"]),
        ("src/**/test_*.py", ["src/test_a.py", "src/a/b/test_a.py"], ["test_a.py", "src/a.py"]),
        ("file?.txt", ["file1.txt"], ["file.txt", "file/.txt", "file12.txt"]),
        ("[ab].txt", ["a.txt", "b.txt"], ["c.txt"]),
        ("[!ab].txt", ["c.txt"], ["a.txt"]),
        ("[a-c]x", ["bx"], ["dx"]),
        ("[x", ["[x"], ["x"]),
        ("a+(b)", ["a+(b)"], ["aab"]),
        ("/etc/*", ["/etc/hosts"], ["etc/hosts"]),
        ("src/", ["src"], ["src/a"]),
        ("../near/**", ["../near/x"], ["near/x"]),
    ],
)
async def test_globs_of_paths(tmp_path: Path, glob: str, fitting: list[str], not_fitting: list[str]) -> None:
    guard = RuleGuard([Rule.allow(f"use({glob})")], root=tmp_path)
    assert [path for path in fitting + not_fitting if await decided(guard, "use", path=path) == "allow"] == fitting


@pytest.mark.parametrize(
    "argument",
    [
        "path",
        "file",
        "file_path",
        "filePath",
        "filename",
        "dir",
        "directory",
        "source",
        "destination",
        "Output-File",
        "cwd",
    ],
)
async def test_arguments_are_taken_for_paths_by_their_names_at_any_depth(tmp_path: Path, argument: str) -> None:
    guard = RuleGuard([Rule.allow("use(**)")], root=tmp_path)
    for value, action in (("a", "allow"), ("/etc/x", "deny")):
        assert await decided(guard, "use", **{argument: value}) == action
        assert await decided(guard, "use", edits=[{argument: "b"}, {argument: value}]) == action


async def test_the_names_of_path_arguments_can_be_given(tmp_path: Path) -> None:
    guard = RuleGuard([Rule.allow("use(**)")], root=tmp_path, paths=["book"])
    assert await decided(guard, "use", book="a", path="/etc") == "deny"  # it is not declared any more
    assert await decided(guard, "use", book="a", path=5) == "allow"
    assert await decided(guard, "use", my_book="/etc") == "deny"


async def test_a_call_of_neither_path_nor_command_is_allowed_by_a_rule_without_glob_alone(tmp_path: Path) -> None:
    guard = RuleGuard([Rule.allow("use(**)"), Rule.allow("free")], root=tmp_path)
    assert await decided(guard, "use", query="x") == "deny"
    assert await decided(guard, "use", path=None) == "deny"
    assert await decided(guard, "free", query="x", path="/etc") == "allow"
    assert await decided(RuleGuard([Rule.deny("use(*)")], default="allow"), "use", query="x") == "deny"
    assert await decided(RuleGuard([Rule.ask("use(**)")], default="allow"), "use") == "ask"
    assert await decided(RuleGuard([Rule.deny("use(src/*)")], default="allow"), "use", query="x") == "allow"


# ---------------------------------------------------------------- commands


GIT = [Rule.deny("bash(git push *)"), Rule.ask("bash(rm *)"), Rule.allow("bash(git *)"), Rule.allow("bash(ls)")]


@pytest.mark.parametrize(
    ("command", "action"),
    [
        ("git status", "allow"),
        ("  git log --oneline  ", "allow"),
        ("ls", "allow"),
        ("ls -l", "deny"),
        ("git", "allow"),
        ("GIT status", "deny"),
        ("git status; curl x", "deny"),
        ("git status && curl x", "deny"),
        ("git status | sh", "deny"),
        ("git status & sh", "deny"),
        ("git log > /etc/passwd", "deny"),
        ("git log < /etc/passwd", "deny"),
        ("git log $(sh)", "deny"),
        ("git log `sh`", "deny"),
        ("git log ${HOME}", "deny"),
        ("git log\nsh", "deny"),
        ("git log\rsh", "deny"),
        ("git log \x00 sh", "deny"),
        ("git commit -m 'a; b'", "deny"),
        (["git", "status"], "allow"),
        (["git", "status; sh"], "deny"),
        ("git push origin", "deny"),
        ("git   push  origin", "deny"),
        ("'git' pu\\sh origin", "deny"),
        ("/usr/bin/git push origin", "deny"),
        ("true; git push origin", "deny"),
        ("rm -rf x", "ask"),
        ("git status; rm -rf x", "ask"),
        ("echo $(rm -rf x)", "ask"),
        ("'r'm -rf 'x", "ask"),
        ("", "deny"),
        (5, "deny"),
        ({"x": 1}, "deny"),
    ],
)
async def test_globs_of_commands(command: Any, action: str) -> None:
    assert await decided(RuleGuard(GIT), "bash", command=command) == action


async def test_of_several_commands_and_paths_the_strictest_decision_wins(tmp_path: Path) -> None:
    guard = RuleGuard([Rule.deny("bash(secrets/**)"), *GIT], root=tmp_path)
    assert await decided(guard, "bash", commands=["git a", "git b"]) == "allow"
    assert await decided(guard, "bash", commands=["git a", "rm b"]) == "ask"
    assert await decided(guard, "bash", commands=["rm b", "git push a", "git b"]) == "deny"
    assert await decided(guard, "bash", command="git status", cwd="sub") == "allow"
    assert await decided(guard, "bash", command="git status", cwd="/etc") == "deny"
    assert await decided(guard, "bash", command="git status", cwd="secrets") == "deny"
    assert await decided(guard, "bash", runs=[{"cmd": "git a"}, {"cmd": "sh"}]) == "deny"


async def test_the_names_of_command_arguments_can_be_given() -> None:
    guard = RuleGuard([Rule.allow("run(git *)")], commands=["line"])
    assert await decided(guard, "run", line="git a") == "allow"
    assert await decided(guard, "run", line="sh") == "deny"


NO_PUSH = [Rule.deny("bash(git push *)"), Rule.allow("bash(git *)")]
PUSHES: list[Any] = [
    *("git push", "git  push", "git\tpush", "git\npush", " git push ", "git push origin main", "git -C . push"),
    *("git --no-pager push", "git -C /x -P push", "sudo git push", "timeout 5 git push", "env X=1 git push"),
    *("X=1 git push", "GIT_SSH=x git status", "git status;git push", "git status && git push", "git log | git push"),
    *(
        "git $(echo push)",
        "git `echo push`",
        "git ${x}",
        "git $x",
        "$x push",
        "(git push)",
        "{ git push; }",
        "!git push",
    ),
    *("/usr/bin/git push", "git.exe push", "C:\\git\\git.exe push", "GIT PUSH", "git pu^sh", "git pu?h", "git pu*"),
    *("'git' 'push'", "g\\it pu\\sh", "git pu''sh", 'git p"us"h', "git 'push", "bash -c 'git push'"),
    *("bash -c \"gi''t push\"", "git -c alias.x=push x", "git -c alias.x='!git push' x", "git -c include.path=f x"),
    *("git --exec-path=/tmp x", "git \uff50ush", "git pu\u200bsh", "git \u0440ush", "git\u00a0push", "git\u2028push"),
    *(["git", "push"], ["git", "-C", ".", "push"], {"a": "git push"}, "git" + " " * 20_000 + "push"),
]


@pytest.mark.parametrize("broadly", [Rule.allow("bash(git *)"), Rule.allow("bash"), Rule.ask("none")])
@pytest.mark.parametrize("command", PUSHES)
async def test_audit_g28_a_denied_command_is_refused_however_it_is_written(command: Any, broadly: Rule) -> None:
    guard = RuleGuard([NO_PUSH[0], broadly], default="allow" if broadly.action == "ask" else "deny")
    assert await decided(guard, "bash", command=command) == "deny"
    assert await decided(guard, "bash", commands=[command]) == "deny"
    assert await decided(guard, "bash", runs=[{"cmd": command}]) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git",
            "git status",
            "git log --oneline",
            "git -C . status",
            "git --no-pager log",
            "git stash",
            "git add *.py",
        ),
        *("git commit -m push", "git commit -m 'fix the push button'", "git log --format=%H", "git show HEAD^"),
        *("git diff HEAD~1 -- src/a.py", "git fetch origin main", "git commit -m 'größe'", "git log -- push.txt"),
        ["git", "commit", "-m", "a b"],
    ],
)
async def test_audit_g28_what_is_no_denied_command_is_allowed(command: Any) -> None:
    assert await decided(RuleGuard(NO_PUSH), "bash", command=command) == "allow"


@pytest.mark.parametrize(
    ("glob", "fitting", "not_fitting"),
    [
        ("git log *", ["git log", "git log -1", "git 'log'  x"], ["git", "git -C . log", "git logs", "X=1 git log"]),
        ("git log", ["git log"], ["git log -1", "/usr/bin/git log", "git log #", "GIT log", "git lo?"]),
        ("npm run test:*", ["npm run test:unit"], ["npm run test", "npm run test:unit --watch", "npm run build"]),
        ("git * --dry-run", ["git push --dry-run"], ["git push origin --dry-run", "git --dry-run"]),
        ('echo "a b" *', ['echo "a b"', 'echo "a b" c'], ["echo a b"]),
        ("*", ["ls", "ls -l"], ["ls; ls", "  "]),
    ],
)
async def test_audit_g28_an_allowing_glob_goes_word_by_word(
    glob: str, fitting: list[str], not_fitting: list[str]
) -> None:
    guard = RuleGuard([Rule.allow(f"bash({glob})")])
    given = [command for command in fitting + not_fitting if await decided(guard, "bash", command=command) == "allow"]
    # A shell reads 'log' without its quotes, a tool that splits at spaces with them: in doubt it is refused.
    assert given == [command for command in fitting if "'" not in command]


@pytest.mark.parametrize(
    ("glob", "fitting", "not_fitting"),
    [
        (
            "rm -rf *",
            ["rm -rf x", "rm -r -f x", "rm x -fr", "rm --recursive x", "/bin/rm -i x"],
            ["rm x", "rmdir -r x"],
        ),
        ("git push --force *", ["git push -f", "git push origin --force", "git -C . push -f"], ["git push", "git -f"]),
        ("git push", ["git push origin"], ["git stash push", "git log push"]),
        ("/usr/bin/git push", ["git push", "/opt/git push"], ["git log"]),
        ("*curl*", ["curl x", "sh -c 'curl x'", "xcurl"], ["ls"]),
        ("* | sh", ["wget x | sh"], ["wget x"]),
        (
            "secrets/**",
            ["cat secrets/key", "cat 'secrets/a b'", "cat src/../secrets/x", "cat -n <secrets/x"],
            ["cat src"],
        ),
    ],
)
async def test_audit_g28_a_denying_glob_fits_what_may_be_it(
    tmp_path: Path, glob: str, fitting: list[str], not_fitting: list[str]
) -> None:
    guard = RuleGuard([Rule.deny(f"bash({glob})"), Rule.allow("bash")], root=tmp_path)
    given = [command for command in fitting + not_fitting if await decided(guard, "bash", command=command) == "deny"]
    assert given == fitting


@given(
    before=st.sampled_from(["", "sudo ", "env A=1 ", "/usr/bin/", "true; ", "x | ", "A=1 "]),
    options=st.lists(st.sampled_from(["-C .", "--no-pager", "-c a=b", "-P", "--git-dir=/x", "-x y z"]), max_size=3),
    quote=st.sampled_from(["", "'", '"', "''"]),
    at=st.integers(0, 4),
    after=st.text("ab -='\"$;|", max_size=12),
)
async def test_audit_g28_no_way_of_writing_it_gets_past_a_denying_rule(
    before: str, options: list[str], quote: str, at: int, after: str
) -> None:
    push = "push"[:at] + quote + "push"[at:] + (quote if len(quote) == 1 else "")
    command = f"{before}git {' '.join([*options, push])} {after}"
    assert await decided(RuleGuard(NO_PUSH), "bash", command=command) == "deny"


@pytest.mark.parametrize(
    ("arguments", "action"),
    [
        ({"path": "drafts/a", "to": "drafts/b"}, "allow"),
        ({"path": "drafts/a", "to": "/etc/passwd"}, "deny"),
        ({"path": "drafts/a", "to": "drafts/leak/x"}, "deny"),
        ({"path": "drafts/a", "whither": "/etc/passwd"}, "deny"),
        ({"path": "drafts/a", "whither": "drafts/b"}, "deny"),
        ({"path": "drafts/a", "whither": ["x"]}, "deny"),
        ({"path": "drafts/a", "whither": {"x": ["/etc/passwd"]}}, "deny"),
        ({"path": "drafts/a", "whither": b"/etc/passwd"}, "deny"),
        ({"path": "drafts/a", "changes": {"/etc/passwd": {"text": "x"}}}, "deny"),
        ({"path": "drafts/a", "text": {"whither": "/etc/passwd"}}, "deny"),
        ({"path": "drafts/a", "TEXT": "see /etc/passwd; run rm", "count": 3, "over": True, "mode": ""}, "allow"),
        ({"files": [{"path": "drafts/a", "content": "x; y"}]}, "allow"),
        ({"files": {"/etc/passwd": "drafts/a"}}, "deny"),
        ({"path": "drafts/a", "script_text": "x"}, "deny"),
        ({"text": "x"}, "deny"),
    ],
)
async def test_audit_g28_every_string_that_is_not_declared_harmless_counts(
    work: Path, arguments: Mapping[str, Any], action: str
) -> None:
    (work / "drafts").mkdir()
    (work / "drafts/leak").symlink_to("/etc")
    assert await decided(RuleGuard([Rule.allow("copy(drafts/**)")], root=work), "copy", **arguments) == action


async def test_audit_g28_an_undeclared_string_is_named_and_can_be_declared(work: Path) -> None:
    rules, call = [Rule.allow("copy(src/**)")], {"path": "src/a", "whither": "src/b", "note": "as asked"}
    decision = await RuleGuard(rules, root=work).check("copy", call, "write")
    assert decision.reason == (
        "'copy' on 'src/b' of 'whither', which is declared neither a path, a command nor harmless, may not be used "
        "(rule: default deny)"
    )
    declared = RuleGuard(rules, root=work, paths=["path", "whither"], harmless=["note"])
    assert await decided(declared, "copy", **call) == "allow"
    assert await decided(declared, "copy", **{**call, "whither": "secrets/b"}) == "deny"


async def test_audit_g28_an_undeclared_string_is_denied_as_a_path_and_as_a_command(work: Path) -> None:
    guard = RuleGuard([Rule.deny("*(secrets/**)"), Rule.ask("*(git push *)"), Rule.allow("do")], root=work)
    assert await decided(guard, "do", what="src/hidden/key") == "deny"
    assert await decided(guard, "do", what="cat secrets/key") == "deny"
    assert await decided(guard, "do", what=["x", "git -C . push"]) == "ask"
    assert await decided(guard, "do", program="git", args=["push"]) == "ask"
    assert await decided(guard, "do", command="git", args=["-C", ".", "push"]) == "ask"
    assert await decided(guard, "do", commands=["git", "push"]) == "ask"
    assert await decided(guard, "do", command="git log", args=["-1"], note="no push") == "allow"
    assert await decided(RuleGuard([Rule.allow("do(git *)")]), "do", command="git log", env={"GIT_SSH": "x"}) == "deny"


# ---------------------------------------------------------------- rules


async def test_the_first_rule_that_fits_decides_and_is_named() -> None:
    guard = RuleGuard([Rule.ask("a*"), Rule.deny("ab"), Rule.allow("*")], default="deny")
    decision = await guard.check("ab", {}, "read")
    assert (decision.action, decision.policy_id) == ("ask", "ask a*")
    assert decision.reason == "'ab' needs approval (rule: ask a*)"
    assert await decided(guard, "b") == "allow"


@pytest.mark.parametrize("default", ["allow", "deny", "ask"])
async def test_where_no_rule_fits_the_default_decides(default: Any) -> None:
    decision = await RuleGuard([Rule.allow("other")], default=default).check("x", {}, "read")
    assert (decision.action, decision.policy_id) == (default, f"default {default}")


async def test_the_reason_says_where_a_path_really_leads(work: Path, tmp_path: Path) -> None:
    decision = await RuleGuard(READ_SRC, root=work).check("read_file", {"path": "src/leak/x"}, "read")
    assert decision.reason == (
        f"'read_file' on 'src/leak/x', which is '{tmp_path}/outside/x' may not be used (rule: default deny)"
    )


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Rule.allow(""), r"a rule is written 'tool' or 'tool\(glob\)', not ''"),
        (lambda: Rule.allow("a()"), "a rule is written"),
        (lambda: Rule.allow("a( )"), "a rule is written"),
        (lambda: Rule.allow("a(b"), "a rule is written"),
        (lambda: Rule.allow("(b)"), "a rule is written"),
        (lambda: Rule.allow("a b"), "a rule is written"),
        (lambda: Rule.allow(5), "a rule is written"),  # type: ignore[arg-type]
        (lambda: Rule("maybe", "a"), "Rule.action must be allow, deny or ask, not 'maybe'"),  # type: ignore[arg-type]
        (lambda: RuleGuard(["a"]), "a rule is made by Rule.allow, Rule.deny or Rule.ask; 'a' is not one"),  # type: ignore[list-item]
        (lambda: RuleGuard("a"), "must be a list of rules"),  # type: ignore[arg-type]
        (lambda: RuleGuard(5), "must be a list of rules"),  # type: ignore[arg-type]
        (lambda: RuleGuard([], default="no"), "RuleGuard.default must be"),  # type: ignore[arg-type]
        (lambda: RuleGuard([], paths="path"), "RuleGuard.paths must be names of arguments, not 'path'"),
        (lambda: RuleGuard([], commands=[""]), "RuleGuard.commands must be names"),
        (lambda: RuleGuard([Rule.deny("a(*/../b)")]), r"has '..' after a wildcard"),
        (lambda: SideEffectGuard("loose"), "SideEffectGuard.mode must be one of .*, not 'loose'"),  # type: ignore[arg-type]
        (lambda: PermissionDecision.deny(" "), "a decision to deny needs a reason"),
        (lambda: PermissionDecision.ask(None), "a decision to ask needs a reason"),  # type: ignore[arg-type]
        (lambda: PermissionDecision("no"), "must be allow, deny or ask"),  # type: ignore[arg-type]
        (lambda: PermissionDecision("allow", "", 5), "policy_id must be a string"),  # type: ignore[arg-type]
        (lambda: ToolPermissions(5), "ToolPermissions.guard must have an async check"),  # type: ignore[arg-type]
        (lambda: ToolPermissions(SideEffectGuard), "ToolPermissions.guard must"),  # type: ignore[arg-type]
        (lambda: ToolPermissions(plan_mode="yes"), "plan_mode must be True or False"),  # type: ignore[arg-type]
        (lambda: ToolPermissions(mcp="allow_all"), "ToolPermissions.mcp must be an McpPolicy"),  # type: ignore[arg-type]
        (lambda: ToolPermissions(breaker=3), "ToolPermissions.breaker must be a CircuitBreaker"),  # type: ignore[arg-type]
        (lambda: CircuitBreaker(0), "CircuitBreaker.failures must be a whole number >= 1, not 0"),
        (lambda: CircuitBreaker(True), "CircuitBreaker.failures"),
        (lambda: CircuitBreaker(3, -1), "CircuitBreaker.pause must be a finite number of seconds >= 0, not -1"),
        (lambda: CircuitBreaker(3, float("inf")), "CircuitBreaker.pause"),
    ],
)
def test_bad_settings_are_refused(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        make()


def test_settings_are_values_and_say_what_they_are() -> None:
    assert ToolPermissions() == ToolPermissions()
    assert Rule.allow("a(b)") == Rule("allow", "a(b)")
    guard = RuleGuard([Rule.allow("a(b)")], root="/")
    assert repr(guard) == "RuleGuard([Rule(action='allow', pattern='a(b)')], default='deny', root='/')"
    assert guard.rules == (Rule.allow("a(b)"),)
    assert repr(SideEffectGuard("plan")) == "SideEffectGuard('plan')"
    assert isinstance(guard, PermissionGuard)


# ---------------------------------------------------------------- laws


names = st.text("ab./~*\n ;$'é", max_size=12)


def below(path: str, folder: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(folder)


@given(path=names, link=st.sampled_from(["", "src/", "src/leak/", "src/mine/", "src/hidden/", "src/loop/"]))
async def test_what_a_glob_allows_lies_below_it_and_what_it_denies_never_gets_through(
    shared_work: Path, path: str, link: str
) -> None:
    given = f"{shared_work}/{link}{path}"
    if await decided(RuleGuard(READ_SRC, root=shared_work), "read_file", path=link + path) == "allow":
        assert below(given, shared_work / "src")
    denies = RuleGuard([Rule.deny("*(secrets/**)"), Rule.allow("read_file")], root=shared_work)
    if await decided(denies, "read_file", path=link + path) == "allow":
        assert not below(given, shared_work / "secrets")


@given(
    text=st.text(),
    value=st.recursive(
        st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ),
)
async def test_a_guard_decides_about_anything_without_an_error(text: str, value: Any) -> None:
    guard = RuleGuard([Rule.deny("x(a*)"), Rule.allow("x(**)"), Rule.allow("x(git *)")])
    for arguments in ({"path": text, "other": value}, {"command": text, "cmd": value}, {"file": value}):
        assert (await guard.check("x", arguments, "read")).action in ("allow", "deny", "ask")


# ---------------------------------------------------------------- side effects


MODES: Mapping[str, tuple[str, str, str]] = {
    "default": ("allow", "allow", "ask"),
    "strict": ("allow", "ask", "ask"),
    "plan": ("allow", "deny", "deny"),
    "bypass": ("allow", "allow", "allow"),
}


@pytest.mark.parametrize("mode", MODES)
async def test_a_side_effect_guard_decides_by_the_mode(mode: Any) -> None:
    guard = SideEffectGuard(mode)
    decisions = [await guard.check("any name", {}, effect) for effect in get_args(SideEffect)]
    assert tuple(decision.action for decision in decisions) == MODES[mode]
    assert all(decision.policy_id == f"side-effects:{mode}" for decision in decisions if decision.action != "allow")
