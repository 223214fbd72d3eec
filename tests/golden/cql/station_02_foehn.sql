-- Onset of foehn in the valley.
Register Stream obs (station text, wind_speed number 'km/h', relative_humidity number '%', wind_direction number 'degree',
  air_temperature number 'degC');
Create Function valley(s) As s In ('7', '9');

Select Istream(station, wind_speed) From obs
Where wind_speed > '6 m/s' and relative_humidity < 40 and wind_direction Between 120 And 220 and air_temperature > '12 degC' and valley(station)
