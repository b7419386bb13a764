"""What a FROM item offers: the columns that names can refer to, and the operator that gives
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlglot import exp

from resurgence.errors import did_you_mean
from resurgence.ids import OperatorId
from resurgence.sql.dialect import to_spark
from resurgence.sql.parse import Script


@dataclass(frozen=True)
class Attribute:
    """A column as the user sees it, and its name in the operator's output.

    The two differ only where the user gave one name to two columns.
    """

    name: str
    column: str
    type: str | None = None


@dataclass(frozen=True)
class Relation:
    """The output of an operator, under the name by which a query may qualify its columns."""

    operator: OperatorId
    attributes: tuple[Attribute, ...]
    has_event_time: bool
    is_aggregated: bool = False
    alias: str | None = None

    def named(self, alias: str | None) -> Relation:
        return replace(self, alias=alias)

    def is_called(self, name: str) -> bool:
        return self.alias is not None and self.alias.lower() == name.lower()

    def find(self, name: str) -> list[Attribute]:
        return [each for each in self.attributes if each.name.lower() == name.lower()]

    def resolve(self, node: exp.Column, script: Script) -> tuple[Attribute, tuple[str, ...]]:
        """The attribute that `a`, `t.a`, `a.field` or `t.a.field` names, and the path of fields
        inside it.
        """
        parts = [each.name for each in node.parts]
        if (
            len(parts) > 1
            and self.is_called(parts[0])
            and (self.find(parts[1]) or not self.find(parts[0]))
        ):
            parts = parts[1:]
        found = self.find(parts[0])
        if len(found) > 1:
            raise script.error(
                node,
                f"column '{parts[0]}' is ambiguous: {len(found)} columns have that name",
                "give them different names with AS",
            )
        if not found:
            raise self._unknown(node, parts, script)
        attribute, path = found[0], tuple(parts[1:])
        return attribute, _checked_path(node, attribute, path, script)

    def _unknown(self, node: exp.Column, parts: list[str], script: Script) -> Exception:
        names = [each.name for each in self.attributes]
        if len(parts) > 1:
            tables = [self.alias] if self.alias else []
            message = f"'{parts[0]}' is neither a table of this query nor a column"
            return script.error(node, message, did_you_mean(parts[0], [*names, *tables]))
        where = f" in '{self.alias}'" if self.alias else ""
        return script.error(
            node, f"there is no column '{parts[0]}'{where}", did_you_mean(parts[0], names)
        )


def reference(attribute: Attribute, path: tuple[str, ...] = ()) -> exp.Expr:
    """The attribute as an expression over the operator's output, never with a qualifier."""
    names = [exp.to_identifier(each, quoted=True) for each in (attribute.column, *path)]
    return exp.Dot.build(names) if path else exp.Column(this=names[0])


def column_sql(attribute: Attribute) -> str:
    """The attribute as Spark SQL text."""
    return to_spark(reference(attribute))


def _checked_path(
    node: exp.Column, attribute: Attribute, path: tuple[str, ...], script: Script
) -> tuple[str, ...]:
    """The path in the spelling of the declared fields, as far as the type is known."""
    spelled: list[str] = []
    kind = exp.DataType.build(attribute.type, dialect="spark") if attribute.type else None
    for name in path:
        if kind is None or kind.this == exp.DType.VARIANT:
            spelled.append(name)
            continue
        if kind.this == exp.DType.ARRAY:  # Spark reads a field of an array of structs as an array.
            return (*spelled, *path[len(spelled) :])
        if kind.this == exp.DType.MAP:
            spelled.append(name)
            kind = kind.expressions[1]
            continue
        fields = {
            each.name.lower(): each for each in kind.expressions if isinstance(each, exp.ColumnDef)
        }
        if kind.this != exp.DType.STRUCT or name.lower() not in fields:
            owner = ".".join([attribute.name, *spelled])
            known = [each.name for each in fields.values()]
            raise script.error(node, f"'{owner}' has no field '{name}'", did_you_mean(name, known))
        field = fields[name.lower()]
        spelled.append(field.name)
        kind = field.kind
    return tuple(spelled)
