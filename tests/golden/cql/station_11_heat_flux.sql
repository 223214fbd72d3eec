-- Eddy heat flux of anemometers at 20 Hz.
Register Stream sonic (station text, w number 'm s-1', t number 'degC') Rate 20 Per Second;

Select station, avg(w * t) - avg(w) * avg(t) as heat_flux From sonic [Range 30 Minutes Slide 10 Minutes] Sample(20) Group By station
