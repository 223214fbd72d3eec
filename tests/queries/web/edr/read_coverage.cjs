// Reads a CoverageJSON document with covjson-reader; prints its domain type, and each value with its coordinates.
const { read } = require("covjson-reader");

const document = JSON.parse(require("fs").readFileSync(0, "utf-8"));
const key = process.argv[2];

async function told(coverage) {
  const [domain, range] = await Promise.all([coverage.loadDomain(), coverage.loadRange(key)]);
  const names = [...domain.axes.keys()];
  const rows = [];
  const walk = (at, left) => {
    if (!left.length) {
      const where = names.map((name) => domain.axes.get(name).values[at[name]]);
      rows.push([...where.map((one) => (one instanceof Date ? one.toISOString() : one)), range.get(at)]);
      return;
    }
    const [name, ...others] = left;
    for (let i = 0; i < domain.axes.get(name).values.length; i++) walk({ ...at, [name]: i }, others);
  };
  walk({}, names);
  return { domainType: domain.domainType, axes: names, rows };
}

read(document)
  .then((found) => Promise.all((found.coverages ?? [found]).map(told)))
  .then((all) => process.stdout.write(JSON.stringify(all)));
