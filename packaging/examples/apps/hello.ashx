<%@ WebHandler Language="C#" Class="Hello" %>
using System.Web;
public class Hello : IHttpHandler {
  public bool IsReusable { get { return true; } }
  public void ProcessRequest(HttpContext context) {
    context.Response.ContentType = "text/plain";
    context.Response.Write("hello from mono: " + context.Request.HttpMethod + " query=" + context.Request.QueryString + " body=" + context.Request.InputStream.Length + "\n");
  }
}
