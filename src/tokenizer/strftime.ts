/** Python's strftime in the C locale and in local time, as chat templates call it. */

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = 'January February March April May June July August September October November December'.split(' ');

/** Directives that are not known stay as they are. */
export function strftime(date: Date, format: string): string {
  return format.replace(/%(-?)([a-zA-Z%])/g, (whole, noPadding, directive) => {
    const value = expand(date, directive);
    if (value === null) return whole;
    return noPadding ? value.replace(/^[0 ]+(?=\d)/, '') : value;
  });
}

function expand(date: Date, directive: string): string | null {
  const hour12 = date.getHours() % 12 || 12;
  switch (directive) {
    case '%':
      return '%';
    case 'a':
      return DAYS[date.getDay()].slice(0, 3);
    case 'A':
      return DAYS[date.getDay()];
    case 'b':
    case 'h':
      return MONTHS[date.getMonth()].slice(0, 3);
    case 'B':
      return MONTHS[date.getMonth()];
    case 'c':
      return strftime(date, '%a %b %e %H:%M:%S %Y');
    case 'd':
      return pad(date.getDate(), 2);
    case 'D':
    case 'x':
      return strftime(date, '%m/%d/%y');
    case 'e':
      return String(date.getDate()).padStart(2, ' ');
    case 'f':
      return pad(date.getMilliseconds() * 1000, 6);
    case 'F':
      return strftime(date, '%Y-%m-%d');
    case 'H':
      return pad(date.getHours(), 2);
    case 'I':
      return pad(hour12, 2);
    case 'j':
      return pad(dayOfYear(date), 3);
    case 'm':
      return pad(date.getMonth() + 1, 2);
    case 'M':
      return pad(date.getMinutes(), 2);
    case 'n':
      return '\n';
    case 'p':
      return date.getHours() < 12 ? 'AM' : 'PM';
    case 'R':
      return strftime(date, '%H:%M');
    case 'S':
      return pad(date.getSeconds(), 2);
    case 't':
      return '\t';
    case 'T':
    case 'X':
      return strftime(date, '%H:%M:%S');
    case 'u':
      return String(date.getDay() || 7);
    case 'U':
      return pad(Math.floor((dayOfYear(date) + 6 - date.getDay()) / 7), 2);
    case 'w':
      return String(date.getDay());
    case 'W':
      return pad(Math.floor((dayOfYear(date) + 6 - ((date.getDay() + 6) % 7)) / 7), 2);
    case 'y':
      return pad(date.getFullYear() % 100, 2);
    case 'Y':
      return pad(date.getFullYear(), 4);
    case 'z':
    case 'Z':
      // datetime.now() has no time zone.
      return '';
    default:
      return null;
  }
}

function pad(value: number, width: number): string {
  return String(value).padStart(width, '0');
}

/** 1 for 1 January. Counted in UTC so that daylight saving cannot shift it. */
function dayOfYear(date: Date): number {
  const day = Date.UTC(date.getFullYear(), date.getMonth(), date.getDate());
  return (day - Date.UTC(date.getFullYear(), 0, 1)) / 86_400_000 + 1;
}
