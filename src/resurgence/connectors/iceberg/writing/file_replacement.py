"""A snapshot that replaces data files.

pyiceberg's overwrite retains every manifest of removed files, and merges none: with an overwrite per
epoch, a table would have more manifests with each of them. Here manifests without live files are
dropped, and the others are merged by the table's properties, as pyiceberg does for appends. Nor can it
write the operation `replace`, which says that rows were only moved.

pyiceberg is imported with this module.
"""

from __future__ import annotations

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.utils.properties import property_as_bool, property_as_int


class FileReplacement(_OverwriteFiles):
    """Removes and adds data files. A context manager, within which they are named."""

    def __init__(
        self, transaction: Transaction, snapshot_properties: dict[str, str], *, moves_rows: bool
    ) -> None:
        super().__init__(
            Operation.OVERWRITE,
            transaction,
            transaction._table.io,
            snapshot_properties=snapshot_properties,
        )
        self._moves_rows = moves_rows

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        live = [each for each in manifests if self._is_needed(each)]
        deletes = [each for each in live if each.content == ManifestContent.DELETES]
        properties = self._transaction.table_metadata.properties
        target = property_as_int(
            properties,
            TableProperties.MANIFEST_TARGET_SIZE_BYTES,
            TableProperties.MANIFEST_TARGET_SIZE_BYTES_DEFAULT,
        )
        least = property_as_int(
            properties,
            TableProperties.MANIFEST_MIN_MERGE_COUNT,
            TableProperties.MANIFEST_MIN_MERGE_COUNT_DEFAULT,
        )
        assert target is not None
        assert least is not None
        merger = _ManifestMergeManager(
            target,
            least,
            property_as_bool(
                properties,
                TableProperties.MANIFEST_MERGE_ENABLED,
                TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT,
            ),
            self,
        )
        data = [each for each in live if each.content == ManifestContent.DATA]
        return [*merger.merge_manifests(data), *deletes]

    def _is_needed(self, manifest: ManifestFile) -> bool:
        """Return whether a manifest has live files, or says what this snapshot has removed."""
        counts = (manifest.added_files_count, manifest.existing_files_count)
        # Manifests of format version 1 may not count.
        has_files = any(each is None or each > 0 for each in counts)
        return has_files or manifest.added_snapshot_id == self._snapshot_id

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        summary = super()._summary(snapshot_properties)
        if not self._moves_rows:
            return summary
        return Summary(Operation.REPLACE, **summary.additional_properties)
