-- Rain within 5 km of lightning.
Register Stream rain (station text, mm number 'mm', slice integer) Rate 2 Per Second;
Register Relation stations (station text, lon number 'degree', lat number 'degree', elevation_m number 'm', catchment text, gateway text);
Register Stream lightning (lon number 'degree', lat number 'degree', current_ka number 'kA');

Select Istream(l.lon, l.lat, r.station, r.mm) From lightning [Range 10 Minutes] l, rain [Range 10 Minutes] r, stations s
Where r.station = s.station and r.mm >= 0.2 and distance_m(l.lon, l.lat, s.lon, s.lat) < 5000
