-- Valley, slope, crest and wind in one slice.
Register Stream air_temperature (station text, series integer, height_m number 'm', value number 'degC', flag integer,
  slice integer, time time, arrival time) Rate 2 Per Second;
Register Stream wind_speed (station text, series integer, height_m number 'm', value number 'm s-1', flag integer,
  slice integer, time time, arrival time) Rate 2 Per Second;

Select Istream(v.slice, c.value - v.value as inversion_k)
From air_temperature [Range 1 Hour Where station = '7'] v, air_temperature [Range 1 Hour Where station = '12'] m,
     air_temperature [Range 1 Hour Where station = '3'] c, wind_speed [Range 1 Hour Where station = '3'] w
Where v.slice = m.slice and m.slice = c.slice and c.slice = w.slice and c.value - v.value > 4 and m.value - v.value > 2 and w.value < 2
