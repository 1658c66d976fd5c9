// How the search weighs what it finds: the theme's own numbers, but that a name of which only a part was typed comes after
// the pages whose title or text has the words. `kind` is "index" for what `index_entries` of tools/build_site.py lists.
var Scorer = {
  score: ([, , , , score, , kind]) => kind === "index" && score < 70 ? 2 : score,
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
