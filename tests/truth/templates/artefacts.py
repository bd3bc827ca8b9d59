"""Artifacts: used in time, passed on intact, the latest one."""

from __future__ import annotations

from tests.truth.templates.notation import Corpus, R, W, agent, issued, tell, together, wait

import mat
from mat_contracts.observation import bytes_preserved, compliant, no_stale_write, present, used_while_valid, version_fresh

CORPUS = Corpus()

URL = "https://files.example/report.pdf?expires=1767225660&user=ann%20lee&sig=9f8e7d6c5b4a39281706f5e4d3c2b1a0"
TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4iLCJleHAiOjE3NjcyMjU2NjB9.c2lnbmF0dXJlLW9mLXRoZS10b2tlbg"

share = R.share(file="report.pdf").opt(issues=mat.artifact.issue("url", at="url", ttl_ms=60_000)) >> {"url": URL}
login = W.login(user="ann").opt(issues=mat.artifact.issue("token", at="data.token", expires_in="data.expires_in")) >> {
    "data": {"token": TOKEN, "expires_in": 300}
}


def download(url=URL, **more):
    return R.download(url=url, **more).opt(consumes={"url": "url"})


def api(token=TOKEN, **more):
    return W.api(
        method="POST", url="https://api.example/orders", headers={"Authorization": f"Bearer {token}"}, body={"n": 1}, **more
    )


# --- used_while_valid ------------------------------------------------------------------------------------------------

valid = CORPUS.template("observation.used_while_valid", used_while_valid())
urls = valid.given(used_while_valid("url"))
only = valid.given(used_while_valid("url", on="download"))
urls.broken("two minutes later", share, wait(120_000), download())
urls.broken("at the very moment it ends", share, wait(60_000), download())
urls.broken("a slow call in between", share, R.think().ms(70_000), download())
valid.broken("a token in a header", login, wait(301_000), api())
valid.broken("used once in time, once too late", share, download(), wait(61_000), download())
valid.broken("declared by hand", issued("nonce-77aa88bb99", "nonce", 1000), wait(2000), W.submit(nonce="nonce-77aa88bb99"))
valid.broken(
    "superseded", *[issued(f"key-{n}-c0ffee77", "key", None, supersedes=True) for n in (1, 2)], W.sign(key="key-1-c0ffee77")
)
urls.broken("by another agent", agent("a", share), wait(90_000), agent("b", download()))
urls.broken("inside a longer text", share, wait(90_000), W.run(command=f"curl -o x '{URL}'"))
valid.broken("in JSON", login, wait(400_000), W.call(payload={"auth": {"token": TOKEN}}))
urls.kept("at once", share, download())
urls.kept("a moment before it ends", share, wait(59_999), download())
urls.kept("issued again, then used", share, wait(90_000), share, download())
valid.kept("a token in a header, in time", login, wait(200_000), api())
valid.kept("never used", share, wait(90_000), tell("ready"))
only.kept("another call uses it late", share, wait(90_000), W.archive(url=URL))
valid.kept("no time limit", issued("nonce-77aa88bb99", "nonce"), wait(9_000_000), W.submit(nonce="nonce-77aa88bb99"))
valid.kept(
    "the new key", *[issued(f"key-{n}-c0ffee77", "key", None, supersedes=True) for n in (1, 2)], W.sign(key="key-2-c0ffee77")
)
urls.kept("begun in time, though it takes long", share, wait(50_000), download().ms(30_000))
urls.kept("another URL", share, wait(90_000), R.download(url="https://files.example/public.pdf"))

# --- bytes_preserved -------------------------------------------------------------------------------------------------

intact = CORPUS.template("observation.bytes_preserved", bytes_preserved())
intact.broken("cut short", share, download(URL[:80]))
intact.broken("decoded", share, download(URL.replace("%20", " ")))
intact.broken(
    "parameters sorted", share, download(URL.replace("expires=1767225660&user=ann%20lee", "user=ann%20lee&expires=1767225660"))
)
intact.broken("another case", share, download(URL.replace("?expires", "?EXPIRES").replace("9f8e7d", "9F8E7D")))
intact.broken("a line break", share, download(URL[:60] + "\n" + URL[60:]))
intact.broken("an ellipsis", share, download(URL[:70] + "..."))
intact.broken("one character of a token", login, api(TOKEN[:-1] + "x"))
intact.broken("a token without its signature", login, api(TOKEN.rsplit(".", 1)[0]))
intact.broken("by a second agent", agent("a", share), agent("b", download(URL[:-4])))
intact.broken(
    "http instead of https, and a slash",
    share,
    download(URL.replace("https://", "http://").replace("report.pdf?", "report.pdf/?")),
)
intact.kept("as it was issued", share, download())
intact.kept("in a header", login, api())
intact.kept(
    "encoded inside a URL",
    share,
    R.fetch(
        url="https://proxy.example/?u="
        + URL.replace("%", "%25")
        .replace(":", "%3A")
        .replace("/", "%2F")
        .replace("?", "%3F")
        .replace("=", "%3D")
        .replace("&", "%26")
    ),
)
intact.kept("in JSON", share, W.post(body={"links": [URL]}))
intact.kept("in a command", share, W.run(command=f"curl -o x '{URL}'"))
intact.kept("late, but intact", share, wait(90_000), download())
intact.kept("an unrelated URL", share, R.fetch(url="https://files.example/help"))
intact.kept("never used", share, tell("ready"))
intact.kept("twice", share, download(), download())
intact.kept("with white space around it", share, R.note(text=f"see {URL} please"))

# --- compliant -------------------------------------------------------------------------------------------------------

all_of = CORPUS.template("observation.compliant", compliant("url"))
all_of.broken("late", share, wait(61_000), download())
all_of.broken("cut", share, download(URL[:80]))
all_of.broken("late and cut", share, wait(61_000), download(URL[:80]))
all_of.broken("missing", share, download(""))
all_of.broken("something else", share, download("report.pdf"))
all_of.broken("null", share, download(None))
all_of.broken("one of two downloads", share, download(), wait(61_000), download())
all_of.broken("a decoded one", share, download(URL.replace("%20", "+")))
all_of.kept("in time and intact", share, download())
all_of.kept("twice", share, download(), wait(10_000), download())
all_of.kept("renewed", share, wait(61_000), share, download())
all_of.kept("a call that consumes none", share, R.list_files(folder="/"))
all_of.kept("not used", share)
all_of.kept("one millisecond before", share, wait(59_999), download())
all_of.kept("several agents", agent("a", share), agent("b", download()), agent("c", download()))
all_of.kept("a token has its own rules", share, login, wait(400_000), W.call(token=TOKEN))

# --- present ---------------------------------------------------------------------------------------------------------

there = CORPUS.template("observation.present", present())
there.broken("empty", share, download(""))
there.broken("null", share, download(None))
there.broken("another text", share, download("report.pdf"))
there.broken("a made-up URL", share, download("https://elsewhere.example/x?sig=1"))
there.broken("nothing was issued", download("https://files.example/guess"))
there.broken("the second call", share, download(), download(""))
there.broken("a placeholder", share, download("<url>"))
there.broken("a list without any", share, download([]))
there.kept("it is there", share, download())
there.kept("late, but there", share, wait(90_000), download())
there.kept("in a list", share, download([URL]))
there.kept("no port consumes it", share, R.list_files(folder="/"))
there.kept("twice", share, download(), download())
there.kept("by another agent", agent("a", share), agent("b", download()))
there.kept("nothing happens", share)
there.kept("the second one issued", share, share, download())

# --- version_fresh, no_stale_write -----------------------------------------------------------------------------------


def read(version, name="A17", form='"{}"'):
    return R.get_page(id=name).opt(issues=mat.artifact.issue("etag", at="etag", supersedes=True)) >> {
        "etag": form.format(version),
        "text": "hi",
    }


def write(version, **more):
    return W.put_page(id="A17", if_match=f'"{version}"', text="new", **more).opt(consumes={"if_match": "etag"})


V1, V2, V3 = "v1-9f8e7d6c5b", "v2-1a2b3c4d5e", "v3-77aa88bb99"

fresh = CORPUS.template("observation.version_fresh", version_fresh("etag"))
stale = CORPUS.template("observation.no_stale_write", no_stale_write("etag"))
for both in (fresh, stale):
    both.broken("an old version", read(V1), read(V2), write(V1))
    both.broken("the old one after a good write", read(V1), write(V1), read(V2), write(V1))
    both.broken("of three, the second", read(V1), read(V2), read(V3), write(V2))
    both.broken("another agent has read a newer one", agent("a", read(V1)), agent("b", read(V2)), agent("a", write(V1)))
    both.broken("the first of two writes is stale", read(V1), read(V2), write(V1), write(V2))
    both.broken("long ago", read(V1), wait(100_000), read(V2), *[R.x(n=n) for n in range(9)], write(V1))
    both.kept("the latest", read(V1), write(V1))
    both.kept("read again, then written", read(V1), read(V2), write(V2))
    both.kept("each write after a read", read(V1), write(V1), read(V2), write(V2), read(V3), write(V3))
    both.kept("only read", read(V1), read(V2), tell("fine"))
    both.kept("no version was known", R.x())
    both.kept("begun while a newer one is on its way", read(V1), together(read(V2).ms(500), write(V1).ms(10)))
    both.kept("two agents, both with the latest", agent("a", read(V1)), agent("b", read(V2)), agent("a", read(V2), write(V2)))
fresh.broken(
    "a key that was rotated",
    *[issued(f"key-{n}-c0ffee77", "etag", None, supersedes=True) for n in (1, 2)],
    W.sign(key="key-1-c0ffee77"),
)
fresh.kept(
    "the rotated key",
    *[issued(f"key-{n}-c0ffee77", "etag", None, supersedes=True) for n in (1, 2)],
    W.sign(key="key-2-c0ffee77"),
)
stale.broken("no version at all", read(V1), W.put_page(id="A17", if_match=None, text="new").opt(consumes={"if_match": "etag"}))
stale.broken("an empty version", read(V1), W.put_page(id="A17", if_match="", text="new").opt(consumes={"if_match": "etag"}))
stale.kept("an old version is only read", read(V1), read(V2), R.get_diff(since=f'"{V1}"'))

# --- more ------------------------------------------------------------------------------------------------------------

fresh.broken(
    "the weak form of an old tag",
    read(V1),
    read(V2),
    W.put_page(id="A17", if_match=f'W/"{V1}"', text="new").opt(consumes={"if_match": "etag"}),
)
fresh.broken(
    "in a header",
    read(V1),
    read(V2),
    W.http(method="PUT", url="https://api.example/p", headers={"If-Match": f'"{V1}"'}, body="x"),
)
fresh.kept(
    "in a header",
    read(V1),
    read(V2),
    W.http(method="PUT", url="https://api.example/p", headers={"If-Match": f'"{V2}"'}, body="x"),
)
fresh.kept("an unrelated text", read(V1), read(V2), W.save(text="v1 of the plan"))
stale.broken(
    "in a header",
    read(V1),
    read(V2),
    W.http(method="PUT", url="https://api.example/p", headers={"If-Match": f'"{V1}"'}, body="x"),
)
stale.broken("it fails, as it must", read(V1), read(V2), write(V1) >> {"status": 412})
stale.kept(
    "in a header",
    read(V1),
    read(V2),
    W.http(method="PUT", url="https://api.example/p", headers={"If-Match": f'"{V2}"'}, body="x"),
)
stale.kept("another write has no version", read(V1), W.notify(text="page changed"))
all_of.broken("with a slash at its end", share, download(URL + "/"))
all_of.broken("a URL of yesterday", share, wait(86_400_000), download())
all_of.kept("in time, encoded in a query", share, R.open(link="https://proxy.example/?u=x"), download())
all_of.kept("two tools use it", share, download(), R.head(url=URL))
there.broken("a path", share, download("/tmp/report.pdf"))
there.broken("a number", share, download(7))
there.kept("intact in a dict", share, download({"href": URL}))
there.kept("a port that failed", share, download() >> TimeoutError())
fresh.broken("the first of three", read(V1), read(V2), read(V3), write(V1))
