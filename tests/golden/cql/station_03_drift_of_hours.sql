-- The same of a few hours, so that a small input shows it.
Register Stream air_temperature (station text, series integer, height_m number 'm', value number 'degC', flag integer,
  slice integer, time time, arrival time) Rate 2 Per Second;
Register Relation neighbours (station text, neighbour text, distance_m number 'm', dz_m number 'm') Static;

Select n.station, n.neighbour, avg(a.value - b.value + 0.0065 * n.dz_m) as drift_k
From air_temperature [Range 1 Day] a, neighbours n, air_temperature [Range 1 Day] b
Where a.station = n.station and b.station = n.neighbour and a.slice = b.slice
Group By n.station, n.neighbour Having count(*) > 6 and abs(avg(a.value - b.value + 0.0065 * n.dz_m)) > 0.5
