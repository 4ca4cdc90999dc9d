"""Another system in the export bench: loads the rows, then exports those of one app for each input line.

usage: peer.py NAME FIELDS FOLDER ROWS OUT

ROWS is a CSV file with the rows of all apps in key order, with their number in the column `seq`. OUT must
get the same bytes that adtrail writes. Prints one line when all rows are loaded, and for each export a line
with the seconds of wall clock and of CPU.
"""

import glob
import os
import pwd
import resource
import subprocess
import sys
import time

FOLDER, ROWS, OUT = sys.argv[3:6]
FIELDS = sys.argv[2].split(",")
# Columns with few distinct values.
LOW_CARDINALITY = {
    "event_type", "event_name", "app", "status", "install_type", "campaign", "channel", "match_type",
    "touch_type", "contributor1_channel", "contributor1_touch_type", "contributor1_match_type",
    "os", "os_version", "device_model", "ip", "ua", "currency",
}
NUMBERS = {"pid", "spreadid", "contributor1_spreadid"}
TIMES = {"event_time", "touch_time", "activation_time", "contributor1_touch_time"}
# The app that is exported.
PID = 1



class ClickHouse:
    """Runs in this process. MergeTree in the order of adtrail's keys, in one part; times as DateTime64, texts
    with few values as LowCardinality. ClickHouse's CSV quotes every text, so an expression adds quotes where
    needed, so that the bytes are the same."""

    def __init__(self):
        from chdb import session

        os.makedirs(FOLDER)
        self.session = session.Session(FOLDER)
        self.run("CREATE DATABASE bench")
        columns = [f"{name} {self.type_of(name)}" for name in FIELDS]
        key = "(pid, event_time, spreadid, seq)"
        self.run(
            f"CREATE TABLE bench.rows (seq UInt64, {', '.join(columns)}) "
            f"ENGINE = MergeTree ORDER BY {key}"
        )
        self.run(
            f"INSERT INTO bench.rows SELECT * FROM file('{ROWS}', CSVWithNames) "
            "SETTINGS date_time_input_format = 'best_effort', input_format_with_names_use_header = 1"
        )
        self.run("OPTIMIZE TABLE bench.rows FINAL")

    @staticmethod
    def type_of(name):
        if name in NUMBERS:
            return "UInt32"
        if name in TIMES:
            return "DateTime64(3, 'UTC')"
        return "LowCardinality(String)" if name in LOW_CARDINALITY else "String"

    def run(self, sql):
        return self.session.query(sql)

    @staticmethod
    def cell(name):
        if name in NUMBERS | TIMES:
            return name
        quoted = f"concat('\"', replaceAll({name}, '\"', '\"\"'), '\"')"
        return f"if(match({name}, '[\",\\r\\n]'), {quoted}, {name}) AS {name}_cell"

    def export(self):
        if os.path.exists(OUT):
            os.remove(OUT)
        cells = ", ".join(self.cell(name) for name in FIELDS)
        with open(OUT, "w") as head:
            head.write(",".join(FIELDS) + "\n")
        self.run(
            f"INSERT INTO FUNCTION file('{OUT}', CustomSeparated) "
            f"SELECT {cells} FROM bench.rows WHERE pid = {PID} "
            "ORDER BY pid, event_time, spreadid, seq "
            "SETTINGS format_custom_escaping_rule = 'Raw', format_custom_field_delimiter = ',', "
            "date_time_output_format = 'iso', optimize_read_in_order = 1, "
            "engine_file_allow_create_multiple_files = 0, engine_file_truncate_on_insert = 0"
        )


class DuckDb:
    """Runs in this process. Loaded in key order, which DuckDB keeps, so an export needs no sort."""

    def __init__(self):
        import duckdb

        os.makedirs(FOLDER)
        self.connection = duckdb.connect(os.path.join(FOLDER, "rows.db"))
        self.connection.execute("SET TimeZone = 'UTC'")
        types = {name: self.type_of(name) for name in FIELDS} | {"seq": "UBIGINT"}
        listed = ", ".join(f"'{name}': '{kind}'" for name, kind in types.items())
        self.connection.execute(
            f"CREATE TABLE rows AS SELECT * FROM read_csv('{ROWS}', header = true, types = {{{listed}}})"
        )
        self.connection.execute("CHECKPOINT")

    @staticmethod
    def type_of(name):
        if name in NUMBERS:
            return "UINTEGER"
        return "TIMESTAMP" if name in TIMES else "VARCHAR"

    def export(self):
        self.connection.execute(
            f"COPY (SELECT {', '.join(FIELDS)} FROM rows WHERE pid = {PID}) TO '{OUT}' "
            "(HEADER, TIMESTAMPFORMAT '%Y-%m-%dT%H:%M:%S.%gZ')"
        )


class PostgreSql:
    """Runs as a separate server. Rows in key order with an index on the key; times stored as the exported texts,
    because formatting them takes PostgreSQL longer."""

    def __init__(self):
        self.bin = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        os.makedirs(FOLDER)
        self.user = None
        if os.geteuid() == 0:
            # PostgreSQL refuses to run as root.
            self.user = "postgres"
            os.chown(FOLDER, pwd.getpwnam(self.user).pw_uid, -1)
            os.chmod(os.path.dirname(FOLDER), 0o711)
        self.data = os.path.join(FOLDER, "data")
        self.program("initdb", "-D", self.data, "-A", "trust", "-U", "bench", "-E", "UTF8", "--locale=C")
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a") as settings:
            settings.write(
                "shared_buffers = '6GB'\nwork_mem = '256MB'\nmaintenance_work_mem = '1GB'\n"
                "listen_addresses = ''\nfsync = off\nwal_level = minimal\nmax_wal_senders = 0\n"
                f"max_wal_size = '8GB'\njit = off\nunix_socket_directories = '{FOLDER}'\n"
            )
        self.log = os.path.join(FOLDER, "log")
        self.program("pg_ctl", "-D", self.data, "-l", self.log, "-w", "start")
        columns = [f"{name} {'bigint' if name in NUMBERS else 'text'}" for name in FIELDS]
        self.sql(
            f"CREATE TABLE rows (seq bigint, {', '.join(columns)})",
            f"\\copy rows FROM '{ROWS}' WITH (FORMAT csv, HEADER)",
            "ALTER TABLE rows ADD PRIMARY KEY (pid, event_time, spreadid, seq)",
            "CLUSTER rows USING rows_pkey",
            "VACUUM ANALYZE rows",
        )
        self.backend = subprocess.Popen(
            self.as_user("psql", "-h", FOLDER, "-U", "bench", "-Xqtd", "postgres"),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
        )
        self.pid = int(self.ask("SELECT pg_backend_pid();"))

    def as_user(self, name, *words):
        command = [os.path.join(self.bin, name), *words]
        return ["runuser", "-u", self.user, "--", *command] if self.user else command

    def program(self, name, *words):
        subprocess.run(self.as_user(name, *words), check=True, stdout=subprocess.DEVNULL, cwd="/")

    def sql(self, *statements):
        # As the user who runs the bench, because `\\copy` reads the rows with the rights of psql.
        words = [word for statement in statements for word in ("-c", statement)]
        command = [os.path.join(self.bin, "psql"), "-h", FOLDER, "-U", "bench", "-Xqd", "postgres"]
        subprocess.run([*command, "-v", "ON_ERROR_STOP=1", *words], check=True, stdout=subprocess.DEVNULL)

    def ask(self, statement):
        self.backend.stdin.write(statement + "\n\\echo .\n")
        self.backend.stdin.flush()
        output = ""
        while (line := self.backend.stdout.readline()) != ".\n":
            if not line:
                sys.exit("PostgreSQL has ended; its log: " + open(self.log).read()[-2000:])
            output += line
        return output.strip()

    def export(self):
        # The server writes the file itself, without a client in between.
        target = os.path.join(FOLDER, "out.csv")
        self.ask(
            f"COPY (SELECT {', '.join(FIELDS)} FROM rows WHERE pid = {PID} "
            f"ORDER BY pid, event_time, spreadid, seq) TO '{target}' WITH (FORMAT csv, HEADER);"
        )
        os.replace(target, OUT)

    def seconds(self):
        with open(f"/proc/{self.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self):
        self.backend.stdin.close()
        self.backend.wait()
        self.program("pg_ctl", "-D", self.data, "-m", "immediate", "stop")


def main():
    peer = {"clickhouse": ClickHouse, "duckdb": DuckDb, "postgresql": PostgreSql}[sys.argv[1]]
    started = time.monotonic()
    peer = peer()
    seconds = getattr(peer, "seconds", time.process_time)
    print(f"has loaded the rows in {time.monotonic() - started:.0f} s", flush=True)
    for line in sys.stdin:
        if line.strip() == "end":
            break
        wall, cpu = time.monotonic(), seconds()
        peer.export()
        print(time.monotonic() - wall, seconds() - cpu, flush=True)
    if hasattr(peer, "end"):
        peer.end()


main()
