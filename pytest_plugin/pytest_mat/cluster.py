"""The cluster of a session (`--mat-executor`), and its link, `python -m pytest_mat.cluster`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from multiprocessing.connection import Connection

import pytest

from mat.kernel.reads import Read
from mat_study.cluster import Cluster, RemoteSubject
from mat_study.forks import refuse_without_fork
from mat_study.fresh import clean_environment
from mat_study.inputs import changed_after, project_files
from mat_study.link import ClusterTasks, serve
from mat_study.live import LiveCalls
from mat_study.remote import KnownFile, RemoteItem, facts_digest
from mat_study.searches import HASH_SEEDS
from pytest_mat.fresh_item import fresh_item
from pytest_mat.options import environment_at_start, session_began_ns
from pytest_mat.remote import execute, release, versions
from pytest_mat.reused import sources_of
from pytest_mat.session import session_of


def cluster_of(config: pytest.Config) -> Cluster:
    """The cluster of the session, which --mat-executor names; its link is started now, and not waited for."""
    session = session_of(config)
    if session.cluster is None:
        session.cluster = _begun(config, session.process)
    return session.cluster


def _begun(config: pytest.Config, client: str) -> Cluster:
    refuse_without_fork()
    address = config.getoption("mat_executor").partition(":")[2]
    most: int | None = config.getoption("mat_workers")
    command = [sys.executable, "-P", "-m", "pytest_mat.cluster", address, str(most or os.cpu_count() or 1)]
    cluster = Cluster(
        [*command, facts_digest(versions()), client], config.invocation_params.dir,
        clean_environment(environment_at_start(config)), address=address, most=most,
    )  # fmt: skip
    cluster.begin()
    return cluster


def remote_subject(
    item: pytest.Item, live: LiveCalls, read: Iterable[Read], *, forked: bool
) -> RemoteSubject:  # fmt: skip
    """The item for workers of a cluster. They must have its cassette, the ini file, and the files that were `read` by now."""
    session, sources, root = session_of(item.config), dict(sources_of(item)), str(item.config.rootpath)
    processes, began_ns = session.fresh, session_began_ns()
    files = [] if live.path is None or not live.path.exists() else [KnownFile.of(str(live.path), grows=True)]
    if item.config.inipath is not None:
        files.append(KnownFile.of(str(item.config.inipath)))
    files += [
        KnownFile.of(name, made=changed_after(name, began_ns)) for name in project_files(read, item.config.rootpath)
    ]  # fmt: skip
    remote = RemoteItem(
        session=session.name, client=session.process, command=processes.command[1:], place=processes.place,
        hash_seed=_hash_seed(), item=fresh_item(item, recorded=live.recorded), root=root, names=tuple(sources),
        sources=facts_digest(sources), files=tuple(files), forked=forked,
    )  # fmt: skip
    return RemoteSubject(item=remote, versions=versions(), sources=sources)


def _hash_seed() -> int:
    """The hash seed of this process if the user chose it: sets have the same order there."""
    chosen = os.environ.get("PYTHONHASHSEED", "")
    return int(chosen) if chosen.isdigit() else HASH_SEEDS[0]


def main() -> None:
    address, workers, expected, client, connection = sys.argv[1:]
    serve(
        Connection(int(connection)), ClusterTasks(execute=execute, release=release), address=address, workers=int(workers),
        versions=expected, client=client,
    )  # fmt: skip


if __name__ == "__main__":
    main()
