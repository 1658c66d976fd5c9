"MathJax for the site: one version, from npm's registry, by its checksum, kept in the user's cache"
import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from platformdirs import user_cache_dir

version = "3.2.2"
integrity = "sha512-Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+geW0OhGw=="
script = "tex-mml-chtml.js"
_wanted = (f"package/es5/{script}", "package/es5/output/chtml/fonts/")


def _npm_pack(folder: Path) -> Path:
    "The package's archive, as npm fetches it; nothing of it is installed or run"
    subprocess.run([shutil.which("npm"), "pack", "--silent", f"mathjax@{version}"], cwd=folder, check=True, timeout=120,
                   stdout=subprocess.DEVNULL)
    return folder / f"mathjax-{version}.tgz"


def _unpack(archive: Path, dest: Path):
    "Check the archive and take the few files of it that a page loads"
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if f"sha512-{digest}" != integrity:
        raise ValueError(f"{archive.name} has checksum sha512-{digest}, expected {integrity}")
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and member.name.startswith(_wanted):
                path = dest / member.name.removeprefix("package/es5/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(tar.extractfile(member).read())


def mathjax() -> Path | None:  # folder with `script` in it; None where npm is missing or does not deliver
    "MathJax's files, from the cache or from npm"
    cache = Path(os.environ.get("ROLEBREGMAN_CACHE") or user_cache_dir("rolebregman")) / f"mathjax-{version}"
    if (cache / script).exists():
        return cache
    if not shutil.which("npm"):
        print("npm is not installed: the site's formulas will load MathJax from a CDN", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "es5"
        try:
            _unpack(_npm_pack(Path(folder)), part)
        except (subprocess.SubprocessError, OSError) as error:
            print(f"npm pack mathjax@{version} failed ({error}): the site's formulas will load MathJax from a CDN",
                  file=sys.stderr)
            return None
        shutil.copytree(part, cache, dirs_exist_ok=True)
    return cache
