// Completion of the tables and columns that a text declares, in an editor of the same page.

import * as CM from "nicegui-codemirror";

export default {
  template: "<span hidden></span>",
  props: { editor: Number, tables: Object, words: Array },
  async mounted() {
    await this.$nextTick();
    const host = getElement(this.editor);
    const view = host.editor ?? (await host.editorPromise);
    const complete = (context) => this.complete(context);
    view.dispatch({
      effects: CM.StateEffect.appendConfig.of(
        CM.EditorState.languageData.of(() => [{ autocomplete: complete }]),
      ),
    });
  },
  methods: {
    complete(context) {
      const before = context.matchBefore(/[\w.]+/);
      if (!before && !context.explicit) return null;
      const text = before ? before.text : "";
      const start = before ? before.from : context.pos;
      const dot = text.lastIndexOf(".");
      const tables = this.tables || {};
      if (dot >= 0) {
        const columns = tables[text.slice(0, dot)] || [];
        return { from: start + dot + 1, options: columns.map((label) => ({ label, type: "property" })) };
      }
      const options = [];
      const seen = new Set();
      for (const [table, columns] of Object.entries(tables)) {
        options.push({ label: table, type: "class", detail: "table", boost: 2 });
        for (const label of columns) {
          if (!seen.has(label)) options.push({ label, type: "property", detail: table, boost: 1 });
          seen.add(label);
        }
      }
      for (const label of this.words || []) options.push({ label, type: "function" });
      return { from: start, options, validFor: /^\w*$/ };
    },
  },
};
