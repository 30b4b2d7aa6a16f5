"""The upload route: in pieces, resumable, for those with a token only, within limits, never outside its folder."""

import hashlib
import json
import threading
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.testclient import TestClient

import engine
from pages._web import memory, uploads
from pages._web.guard import Guard

ID = "0123456789abcdef"


@pytest.fixture
def client(home: Path):
    from app import ROUTES

    with TestClient(Starlette(routes=ROUTES, middleware=[Middleware(Guard)])) as client:
        yield client


def put(
    client: TestClient,
    content: bytes,
    *,
    name: str = "data.nc",
    upload: str = ID,
    token: str | None = None,
    first: int = 0,
    total: int | None = None,
    **headers: str,
):
    span = f"bytes {first}-{first + len(content) - 1}/{total or first + len(content)}"
    sent = {"X-Nuscope-Token": uploads.grant() if token is None else token, "Content-Range": span} | headers
    return client.put(f"/upload/{upload}/{name}", content=content, headers=sent)


def stored(home: Path) -> list[Path]:
    return [p for p in (home / "uploads").rglob("*") if p.is_file() and p.name != ".secret"]


def test_a_whole_file_lands_under_its_hash(client: TestClient, home: Path) -> None:
    answer = put(client, b"abc" * 1000)
    assert answer.status_code == 200, answer.text
    brought = uploads.find(answer.json()["id"], answer.json()["name"])
    assert brought.path.read_bytes() == b"abc" * 1000
    assert hashlib.sha256(b"abc" * 1000).hexdigest().startswith(brought.id)
    assert stored(home) == [brought.path], "no piece is left behind"


def test_pieces_go_on_where_they_broke_off(client: TestClient) -> None:
    token, whole = uploads.grant(), bytes(range(256)) * 40
    assert put(client, whole[:4000], token=token, total=len(whole)).json() == {"received": 4000}
    assert client.get(f"/upload/{ID}/data.nc", headers={"X-Nuscope-Token": token}).json() == {"received": 4000}
    again = put(client, whole[3000:5000], token=token, first=3000, total=len(whole))
    assert again.status_code == 409 and again.json()["received"] == 4000, "a piece that does not fit is not written"
    done = put(client, whole[4000:], token=token, first=4000, total=len(whole)).json()
    assert uploads.find(done["id"], done["name"]).path.read_bytes() == whole


@pytest.mark.parametrize("token", ["", "x", "a.b.c", uploads.__name__, "00" * 16 + ".9999999999." + "0" * 64])
def test_without_a_token_nothing_is_written(client: TestClient, home: Path, token: str) -> None:
    assert put(client, b"abc", token=token).status_code == 401
    assert stored(home) == []


def test_an_old_token_is_refused(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    token = uploads.grant()
    monkeypatch.setattr(uploads, "LIFETIME", -1.0)
    assert put(client, b"abc", token=token).status_code == 401


def test_another_sites_page_is_refused(client: TestClient, home: Path) -> None:
    assert put(client, b"abc", Origin="http://evil.example").status_code == 403
    assert put(client, b"abc", Origin="http://testserver").status_code == 200
    assert len(stored(home)) == 1


@pytest.mark.parametrize("host", ["evil.example", "nuscope.evil.example:8501"])
def test_a_foreign_host_name_is_refused(client: TestClient, host: str) -> None:
    assert put(client, b"abc", Host=host).status_code == 421


@pytest.mark.parametrize("host", ["localhost:8501", "127.0.0.1:8501", "[::1]:8501", "192.168.1.20"])
def test_a_bare_address_is_answered(client: TestClient, host: str) -> None:
    assert put(client, b"abc", Host=host).status_code == 200


def test_too_large_is_refused_before_a_byte_is_written(client: TestClient, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.settings import settings

    monkeypatch.setenv("NUSCOPE_UPLOAD_LIMIT", "1000")
    settings.cache_clear()
    answer = put(client, b"a" * 10, total=1001)
    assert answer.status_code == 413 and "NUSCOPE_DATA_FOLDERS" in answer.json()["error"]["remedy"]
    assert stored(home) == []
    assert put(client, b"a" * 1000).status_code == 200


def test_a_full_disk_is_refused(client: TestClient, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "RESERVE", 1 << 62)
    assert put(client, b"abc").status_code == 507
    assert stored(home) == []


def test_more_than_announced_is_refused(client: TestClient) -> None:
    answer = client.put(
        f"/upload/{ID}/data.nc", content=b"a" * 50, headers={"X-Nuscope-Token": uploads.grant(), "Content-Range": "bytes 0-9/10"}
    )
    assert answer.status_code == 400


@pytest.mark.parametrize("span", ["", "bytes 0-9", "bytes 9-0/10", "bytes 0-10/5", "items 0-9/10", "bytes -5-9/10", "bytes a-b/c"])
def test_a_wrong_range_is_refused(client: TestClient, span: str) -> None:
    answer = client.put(f"/upload/{ID}/data.nc", content=b"a" * 10, headers={"X-Nuscope-Token": uploads.grant(), "Content-Range": span})
    assert answer.status_code == 400 and "error" in answer.json()


@pytest.mark.parametrize("name", ["..%2F..%2Fevil.nc", "%2e%2e%2fevil.nc", "..%5C..%5Cevil.nc", ".hidden.nc", "a b;rm -rf.nc", "-rf.nc"])
def test_names_cannot_leave_their_folder(client: TestClient, home: Path, name: str) -> None:
    answer = put(client, b"abc", name=name)
    assert answer.status_code in (200, 400, 404)
    for path in stored(home):
        assert path.resolve().is_relative_to((home / "uploads").resolve())
        assert path.name[0].isalnum() and " " not in path.name and ";" not in path.name
    assert not list(home.parent.glob("**/evil.nc")) or all(p.is_relative_to(home / "uploads") for p in home.parent.glob("**/evil.nc"))


@pytest.mark.parametrize("upload", ["..", "short", "ABCDEF0123", "0123456789abcdeg", "a" * 65])
def test_ids_are_checked(client: TestClient, home: Path, upload: str) -> None:
    assert put(client, b"abc", upload=upload).status_code in (400, 404)
    assert stored(home) == []


@pytest.mark.parametrize("name", ["script.py", "page.html", "data", "x.nc.exe"])
def test_other_kinds_of_files_are_refused(client: TestClient, name: str) -> None:
    answer = put(client, b"abc", name=name)
    assert answer.status_code == 400 and ".safetensors" in answer.json()["error"]["expected"]


@pytest.mark.parametrize("ending", engine.every_ending())
def test_whatever_a_reader_takes_is_taken(client: TestClient, ending: str) -> None:
    answer = put(client, b"abc", name=f"mine{ending.upper()}")
    assert answer.status_code == 200, answer.text
    assert uploads.find(answer.json()["id"], answer.json()["name"]).path.name == f"mine{ending.upper()}"


def test_a_name_that_says_nothing_is_judged_by_its_first_bytes(client: TestClient, home: Path) -> None:
    assert put(client, b"GRIB" + b"\0" * 60, name="gfs.t00z.pgrb2.0p25.f006").status_code == 200
    assert put(client, b"hello" * 20, name="gfs.t00z.pgrb2.0p25.f012", upload="f" * 16).status_code == 400
    assert len(stored(home)) == 1, "nothing of the refused one is kept"


def test_what_was_brought_is_found_again_by_its_browser_alone(client: TestClient, home: Path) -> None:
    mine, other = uploads.grant(), uploads.grant()
    answer = put(client, b"abc" * 100, token=mine).json()
    file = uploads.find(answer["id"], answer["name"])
    memory.remember(mine, "data", {file.name: file.path})
    assert memory.recall(mine, "data") == {"data.nc": file.path}
    assert memory.recall(mine, "calibrate") == {} == memory.recall(other, "data") == memory.recall("no.token.x", "data")
    file.path.unlink()
    assert memory.recall(mine, "data") == {}, "what is gone from the store is not shown"


def test_a_note_gives_back_files_of_the_store_alone(home: Path, tmp_path: Path) -> None:
    token, secret = uploads.grant(), tmp_path / "secret.nc"
    secret.write_bytes(b"abc")
    memory.remember(token, "data", {"secret.nc": secret, ".secret": home / "uploads" / ".secret"})
    assert memory.recall(token, "data") == {}


def test_an_array_lies_beside_its_labels(client: TestClient) -> None:
    brought = []
    for upload, (name, content) in enumerate({"set.npy": b"images", "set_labels.npy": b"labels"}.items()):
        answer = put(client, content, name=name, upload=f"{upload:016x}").json()
        brought.append(uploads.find(answer["id"], answer["name"]).path)
    (opened,) = uploads.together(brought)
    assert opened.read_bytes() == b"images" and opened.with_name("set_labels.npy").read_bytes() == b"labels"
    assert uploads.together(brought[:1]) == tuple(brought[:1]), "alone it stays where it is"


def test_the_first_tokens_are_good_whoever_asks_first(home: Path) -> None:
    """Eight sessions that make the signing key at the same moment all get tokens that hold."""
    for _ in range(20):
        (home / "uploads" / ".secret").unlink(missing_ok=True)
        start, tokens = threading.Barrier(8), list[str]()

        def session(start: threading.Barrier = start, tokens: list[str] = tokens) -> None:
            start.wait()
            tokens.append(uploads.grant())

        sessions = [threading.Thread(target=session) for _ in range(8)]
        for thread in sessions:
            thread.start()
        for thread in sessions:
            thread.join()
        assert len(tokens) == 8 and all(uploads.owner(token) for token in tokens)
    assert [p.name for p in (home / "uploads").iterdir()] == [".secret"]


def test_two_users_at_once_do_not_meet(client: TestClient) -> None:
    """Same file name, same id, pieces in turn: each gets the own content."""
    results: dict[str, bytes] = {}

    def user(letter: bytes) -> None:
        token, at, answer = uploads.grant(), 0, {}
        while at < 5000:
            answer = put(client, letter * 500, token=token, first=at, total=5000).json()
            at = answer["received"]
        results[letter.decode()] = uploads.find(answer["id"], answer["name"]).path.read_bytes()

    users = [threading.Thread(target=user, args=(letter,)) for letter in (b"a", b"b")]
    for thread in users:
        thread.start()
    for thread in users:
        thread.join()
    assert results == {"a": b"a" * 5000, "b": b"b" * 5000}


def test_a_file_of_the_store_is_found_by_its_own_id_only(client: TestClient) -> None:
    from engine.errors import EngineError

    answer = put(client, b"abc").json()
    for file_id, name in (("0" * 32, "data.nc"), (answer["id"], "other.nc"), ("../" + answer["id"], "data.nc")):
        with pytest.raises(EngineError):
            uploads.find(file_id, name)


def test_folders_offer_only_what_lies_in_them(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.settings import settings

    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    (allowed / "deep").mkdir(parents=True)
    outside.mkdir()
    for path in (allowed / "a.nc", allowed / "deep" / "b.safetensors", allowed / "c.exe", outside / "d.nc"):
        path.write_bytes(b"x")
    (allowed / "link.nc").symlink_to(outside / "d.nc")
    assert uploads.offered() == [], "no folder is allowed unless the owner says so"
    monkeypatch.setenv("NUSCOPE_DATA_FOLDERS", str(allowed))
    settings.cache_clear()
    assert [p.name for p in uploads.offered()] == ["a.nc", "b.safetensors"]


def test_the_secret_is_the_owners_alone(home: Path) -> None:
    uploads.grant()
    assert (home / "uploads" / ".secret").stat().st_mode & 0o077 == 0


def test_errors_are_json_that_a_page_can_show(client: TestClient) -> None:
    error = json.loads(put(client, b"abc", name="x.exe").text)["error"]
    assert set(error) == {"what", "found", "expected", "remedy"}
