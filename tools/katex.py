"KaTeX for the site: one version, from npm's registry, by its checksum, kept in the user's cache"
import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from platformdirs import user_cache_dir

version = "0.19.1"
integrity = "sha512-jG8uKntjSEcm2EpQOh0XturpPuuC9r3Sq5HLHdsFdWZT27E672SF19QEi+of0/YeOy15lDgRhKvr5614uRrEfA=="
script, style = "katex.min.js", "katex.min.css"
cdn = f"https://cdn.jsdelivr.net/npm/katex@{version}/dist"
_wanted = re.compile(rf"package/dist/({script}|{style}|fonts/.*\.woff2)")


def _npm_pack(folder: Path) -> Path:
    "The package's archive, as npm fetches it; nothing of it is installed or run"
    subprocess.run([shutil.which("npm"), "pack", "--silent", f"katex@{version}"], cwd=folder, check=True, timeout=120,
                   stdout=subprocess.DEVNULL)
    return folder / f"katex-{version}.tgz"


def _unpack(archive: Path, dest: Path):
    "Check the archive and take the few files of it that a page loads"
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if f"sha512-{digest}" != integrity:
        raise ValueError(f"{archive.name} has checksum sha512-{digest}, expected {integrity}")
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and _wanted.fullmatch(member.name):
                path = dest / member.name.removeprefix("package/dist/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(tar.extractfile(member).read())


def katex() -> Path | None:  # folder with `script` in it; None where npm is missing or does not deliver
    "KaTeX's files, from the cache or from npm"
    cache = Path(os.environ.get("ROLEBREGMAN_CACHE") or user_cache_dir("rolebregman")) / f"katex-{version}"
    if (cache / script).exists():
        return cache
    if not shutil.which("npm"):
        print("npm is not installed: the site's formulas will load KaTeX from a CDN", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "dist"
        try:
            _unpack(_npm_pack(Path(folder)), part)
        except (subprocess.SubprocessError, OSError) as error:
            print(f"npm pack katex@{version} failed ({error}): the site's formulas will load KaTeX from a CDN",
                  file=sys.stderr)
            return None
        shutil.copytree(part, cache, dirs_exist_ok=True)
    return cache
