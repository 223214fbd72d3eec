-- Hourly rain by catchment against limits that fall as soil fills.
Register Stream rain (station text, mm number 'mm', slice integer) Rate 2 Per Second;
Register Stream soil_moisture (station text, series integer, height_m number 'm', value number '%', flag integer,
  slice integer, time time, arrival time) Rate 2 Per Second;
Register Relation stations (station text, lon number 'degree', lat number 'degree', elevation_m number 'm', catchment text, gateway text);
Register Relation thresholds (catchment text, mm_1h number 'mm');

Select W.catchment, W.mm, M.wet
From (Select s.catchment, sum(r.mm) / count(distinct r.station) as mm From rain [Range 1 Hour Slide 5 Minutes] r, stations s Where r.station = s.station Group By s.catchment) W,
     (Select s.catchment, avg(m.value) as wet From soil_moisture [Partition By station Rows 1] m, stations s Where m.station = s.station Group By s.catchment) M, thresholds L
Where W.catchment = M.catchment and W.catchment = L.catchment and W.mm > L.mm_1h * (1 - 0.3 * M.wet / 100)
