-- Frost in three hours by the fall of the last one.
Register Stream air_temperature (station text, series integer, height_m number 'm', value number 'degC', flag integer,
  slice integer, time time, arrival time) Rate 2 Per Second;

Select Rstream(n.station, n.value, n.value + 3 * (n.value - h.was) as in_3h)
From air_temperature [Now] n, (Select station, first(value) as was, count(*) as k From air_temperature [Range 1 Hour] Group By station) h
Where n.station = h.station and h.k >= 4 and n.value < '4 degC' and n.value + 3 * (n.value - h.was) < '0 degC'
