"""Two jobs of a service never write one file."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.control.service_harness import JOB, SQL, Service, simulated

from resurgence.connectors.path_overlap import PathTaken
from resurgence.control.controller import NewJob
from resurgence.control.store.metadata import JobExists
from resurgence.ids import JobName

OTHER, THIRD = JobName("trips"), JobName("third")


def writing(service: Service, file: str, connector: str = "single_file") -> str:
    options = f"connector = '{connector}', path = '{service.folder / file}', type = 'sink'"
    return SQL.replace("connector = 'blackhole'", options)


async def create(service: Service, name: JobName, sql: str) -> None:
    await service.controller.create(NewJob(name, sql, start=False))


async def names(service: Service) -> list[JobName]:
    return [each.record.name for each in await service.controller.jobs()]


@simulated
async def test_a_job_that_would_write_the_file_of_another_job_is_refused(service: Service) -> None:
    await create(service, JOB, writing(service, "out.json"))
    with pytest.raises(PathTaken, match=f"which table 'nowhere' of job '{JOB}' writes"):
        await create(service, OTHER, writing(service, "x/../out.json"))
    await create(service, OTHER, writing(service, "more.json"))
    await create(service, THIRD, writing(service, "out.json", "filesystem"))
    assert await names(service) == sorted([JOB, OTHER, THIRD])


@simulated
async def test_an_edit_reserves_the_new_file_and_releases_the_old_one(service: Service) -> None:
    await create(service, JOB, writing(service, "out.json"))
    await create(service, OTHER, writing(service, "more.json"))
    with pytest.raises(PathTaken):
        await service.controller.edit(OTHER, writing(service, "out.json"), None, {})
    await service.controller.edit(JOB, writing(service, "last.json"), None, {})
    await service.controller.edit(OTHER, writing(service, "out.json"), None, {})
    with pytest.raises(PathTaken):
        await create(service, THIRD, writing(service, "last.json"))


@simulated
async def test_of_two_requests_for_one_file_at_the_same_time_one_is_refused(
    service: Service,
) -> None:
    sql = writing(service, "out.json")
    answers = await asyncio.gather(
        *(create(service, name, sql) for name in (JOB, OTHER, THIRD)), return_exceptions=True
    )
    assert [type(each) for each in answers if each is not None] == [PathTaken, PathTaken]
    assert len(await names(service)) == 1


@simulated
async def test_a_refused_request_reserves_no_file(service: Service) -> None:
    await create(service, JOB, writing(service, "out.json"))
    with pytest.raises(JobExists):
        await create(service, JOB, writing(service, "more.json"))
    await create(service, OTHER, writing(service, "more.json"))
    with pytest.raises(PathTaken):
        await create(service, THIRD, writing(service, "out.json"))


@simulated
async def test_files_of_jobs_from_before_a_restart_are_known_and_those_of_deleted_jobs_free(
    service: Service,
) -> None:
    await create(service, JOB, writing(service, "out.json"))
    await service.close()
    await service.open()
    with pytest.raises(PathTaken):
        await create(service, OTHER, writing(service, "out.json"))
    await service.controller.delete(JOB, with_state=False)
    await service.gone()
    await create(service, OTHER, writing(service, "out.json"))
