"""Under which transactional ids the tasks of a source connector commit, on workers with exactly-once support."""


def transactional_id(group_id: str, connector: str, task: int) -> str:
    return f"{group_id}-{connector}-{task}"
