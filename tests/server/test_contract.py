"""Requests made of the OpenAPI document: none is answered by an error of ours."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.server.conftest import Scripted, services

schemathesis = pytest.importorskip("schemathesis")


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    with services(tmp_path_factory.mktemp("contract")) as start:
        yield start(Scripted("Fine."))


def test_no_request_of_the_document_is_answered_by_an_error_of_ours(running):
    document = running.http.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    asked = set()
    for found in schema.get_all_operations():
        operation = found.ok()

        @given(case=operation.as_strategy())
        @settings(
            max_examples=5, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
        )
        def fits(case):
            answer = case.call(base_url=running.url)
            asked.add(answer.status_code)
            assert answer.status_code < 500, answer.text[:300]

        fits()
    assert {200, 400, 404} <= asked
